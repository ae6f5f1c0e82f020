// Work on streams. A piece is done when something that has to wait for it is: the host, or other
// work. So what nobody waits for comes as late as a GPU may do it, and a program that forgets to
// wait sees it (CUDA C++ Programming Guide, asynchronous concurrent execution).
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

struct Piece {
  Work work;
  What what;  // nothing if nobody need wait for it
  std::vector<Task> after;
  int gpu = 0;
  Task ahead = 0;     // among them a launch that need not have ended
  bool done = false;  // for a host that polls: it knows no more of it than what it sees
};
std::map<Task, Piece> pending;  // those that they come after have smaller numbers
Task last_task = 0;
// A host that gives more before it waits finds the GPU at work, as where a GPU's queue is full; of
// what is done then as many are kept.
constexpr size_t kMostPending = 1024;
size_t given = 0;  // since the GPU was last at work
// What the program has asked for, in order; the first so many are done before their call returns.
std::vector<Asked> asked_for;
size_t at_once = 0;
// Of what nothing orders; among what one operation waits for, the oldest comes first usually, too.
enum class Order { kUsual, kOldestFirst, kNewestFirst };
Order order = Order::kUsual;
// What is done now: a kernel that waits for other work has that done meanwhile.
std::vector<Task> running;

struct Line {
  int gpu = current_gpu();
  Task last = 0;
  std::vector<Task> waits;  // for what the next piece has to wait, too
  bool blocking = true;     // in order with the default stream
  uint32_t number = 0;      // for the emulator's clocks; 0 before the first piece
  std::string name = {};
  Task launched = 0;  // the launch that the next piece may begin before the end of
};
std::map<cudaStream_t, Line> lines;
uint32_t last_line = 0;
unsigned streams_opened = 0;
// By GPU, the last pieces of blocking streams that are destroyed.
std::map<int, std::vector<Task>> left_behind;

cudaStream_t default_stream(int gpu) {
  static char handles[kMostGpus];
  return reinterpret_cast<cudaStream_t>(&handles[gpu]);
}

Line& line_of(cudaStream_t stream) {
  const auto [found, made] = lines.try_emplace(stream);
  Line& line = found->second;
  if (!made) return line;
  line.name = "the default stream";
  for (int gpu = 0; gpu < device.count; ++gpu) {
    if (default_stream(gpu) == stream) line.gpu = gpu;
  }
  return line;
}

// The host may access what it reaches, too, but not while it is pending.
void watch_reaches(const Piece& piece) {
  for (const Reach& each : piece.what.reaches) watch(each);
}

// As the last task.
void keep(Piece piece) {
  if (orders()) watch_reaches(piece);
  pending[last_task] = std::move(piece);
}

cudaError_t nothing() {
  return cudaSuccess;
}

// Of a launch of the program that nobody has waited for when it failed.
cudaError_t failed_unseen = cudaSuccess;
// By a wait that nothing ends: nothing comes after it.
bool stuck = false;

cudaError_t perform(Task task, const Work& work) {
  if (stuck) return cudaErrorLaunchFailure;
  running.push_back(task);
  order_begins(task);
  const cudaError_t ended = work();
  order_ends();
  running.pop_back();
  if (ended != cudaSuccess && is_gpu_thread()) failed_unseen = ended;
  return ended;
}

// `known`: the host knows that it is done.
cudaError_t done(std::map<Task, Piece>::iterator of, bool known = true) {
  const Task task = of->first;
  const bool before = std::exchange(of->second.done, true);
  if (!before && kernel_waits_for_host() && of->second.what.kind == Kind::kLaunch) {
    return not_here("a kernel beside one that waits for the host");
  }
  const Work work = std::move(of->second.work);
  if (known) pending.erase(of);
  return before ? cudaSuccess : perform(task, work);
}

}  // namespace

OneCall one_call;
cudaStream_t current_stream = nullptr;
bool current_at_once = false;

namespace {

thread_local bool per_thread = false;

// CUDA programming guide, "Default Stream": a thread's own one is like a blocking stream.
cudaStream_t stream_of_thread() {
  static std::vector<std::unique_ptr<char>> handles;
  static unsigned threads = 0;
  thread_local unsigned number = 0;
  thread_local std::map<int, cudaStream_t> mine;  // by GPU
  cudaStream_t& stream = mine[current_gpu()];
  if (stream == nullptr) {
    KB_ONE_CALL;
    handles.push_back(std::make_unique<char>());
    stream = reinterpret_cast<cudaStream_t>(handles.back().get());
    if (number == 0) number = ++threads;
    lines[stream].name = "the default stream of thread " + std::to_string(number);
  }
  return stream;
}

}  // namespace

cudaStream_t named(cudaStream_t stream) {
  if (stream == cudaStreamPerThread || (stream == nullptr && per_thread)) return stream_of_thread();
  return stream == cudaStreamLegacy || stream == nullptr ? default_stream(current_gpu()) : stream;
}

int gpu_of(cudaStream_t stream) {
  KB_ONE_CALL;
  return line_of(named(stream)).gpu;
}

PerThread::PerThread() : before_(std::exchange(per_thread, true)) {}
PerThread::~PerThread() {
  per_thread = before_;
}

void open_stream(cudaStream_t stream, bool blocking) {
  KB_ONE_CALL;
  lines[stream].blocking = blocking;
  lines[stream].name = "stream " + std::to_string(++streams_opened);
}

cudaStream_t in_no_order() {
  static char handle;
  KB_ONE_CALL;
  auto* const stream = reinterpret_cast<cudaStream_t>(&handle);
  Line& line = line_of(stream);
  line.blocking = false;
  line.name = "the host";
  return stream;
}

// CUDA runtime API, cudaStreamDestroy: what was given to the stream is still done.
void close_stream(cudaStream_t stream) {
  KB_ONE_CALL;
  const auto found = lines.find(stream);
  if (found == lines.end()) return;
  const Line& line = found->second;
  if (line.blocking) left_behind[line.gpu].push_back(line.last);
  lines.erase(found);
}

namespace {

// CUDA programming guide, "Peer-to-Peer Memory Copy": a copy in the NULL stream does not start
// until what either device was given before has ended, and ends before what either is given after
// it. On hardware (two H200, CUDA 13.0) that is so of every such copy of another device's memory,
// and of non-blocking streams it is not.
std::vector<cudaStream_t> others_between(int gpu, Gpus gpus) {
  std::vector<cudaStream_t> found;
  for (int other = 0; other < device.count; ++other) {
    if (other != gpu && (gpus & only(other)) != 0) found.push_back(default_stream(other));
  }
  return found;
}

// For a word that somebody else, such as the host, has to write.
bool waits_for_word(const Piece& piece) {
  return !piece.done && piece.what.ready && !piece.what.ready();
}

bool nothing_waits_for_words() {
  return std::none_of(pending.begin(), pending.end(),
                      [](const auto& each) { return waits_for_word(each.second); });
}

}  // namespace

// CUDA programming guide, "Programmatic Dependent Launch and Synchronization": only a launch behind
// another may begin before that has ended. On hardware (H200, CUDA 13.0) it does so behind a record
// of an event without timing and a wait for an event, too, and not behind a record with timing, a
// copy, a memset or a host function.
Task enqueue(cudaStream_t stream, Work work, What what) {
  KB_ONE_CALL;
  if (refused_in_host_function()) return 0;
  host_acts();
  host_is_there();
  stream = named(stream);
  Line& line = line_of(stream);
  if (line.number == 0) line.number = ++last_line;
  const cudaStream_t of_gpu = default_stream(line.gpu);
  const std::vector<cudaStream_t> beside =
      stream == of_gpu ? others_between(line.gpu, what.gpus) : std::vector<cudaStream_t>{};
  for (cudaStream_t each : beside) line.waits.push_back(mark(each));
  const Task ahead = what.programmatic ? line.launched : 0;
  const bool passes = what.passes && line.waits.empty();
  const bool launches = what.kind == Kind::kLaunch;
  Piece piece{std::move(work), std::move(what), std::move(line.waits), line.gpu};
  line.waits.clear();
  if (stream == of_gpu) {
    for (const auto& [other, each] : lines) {
      if (each.blocking && each.gpu == line.gpu && &each != &line) {
        piece.after.push_back(each.last);
      }
    }
    std::vector<Task>& left = left_behind[line.gpu];
    piece.after.insert(piece.after.end(), left.begin(), left.end());
    left.clear();
  } else if (line.blocking) {
    piece.after.push_back(lines[of_gpu].last);
  }
  if (ahead == 0) piece.after.push_back(line.last);
  const Asked asked = asked_now(piece.what.kernel);
  if (orders() && piece.what.kind != Kind::kNothing) asked_for.push_back(asked);
  order_operation(++last_task, line.number, line.gpu, piece.what.kind, asked,
                  " on " + line.name + words_of_gpu(line.gpu), ahead, piece.after);
  if (ahead != 0) piece.after.push_back(ahead);
  piece.ahead = ahead;
  line.last = last_task;
  if (!passes) line.launched = launches ? last_task : 0;
  keep(std::move(piece));
  const Task task = last_task;
  for (cudaStream_t each : beside) {
    wait_before_next(each, task);
    mark(each);
  }
  if (++given % kMostPending == 0 && nothing_waits_for_words()) do_unseen();
  return task;
}

// CUDA programming guide, "CUDA Graphs": a launch of an executable graph comes after its last one.
void enqueue_nodes(CUgraphExec_st& executable, const std::vector<size_t>& order,
                   cudaStream_t stream) {
  KB_ONE_CALL;
  if (executable.last != 0) wait_before_next(stream, executable.last);
  for (const Condition& each : executable.conditions) {
    if (!each.is_given) continue;
    const auto set = [each] { return copy(each.value, &each.first, sizeof each.first); };
    enqueue(stream, set, copy_of(nullptr, 0, each.value, sizeof each.first));
  }
  const Task begin = mark(stream);
  std::vector<Task> all;
  for (const size_t at : order) {
    CUgraphExec_st::Step& step = executable.steps[at];
    if (step.line == 0) step.line = ++last_line;
    const int gpu = step.what.call != nullptr ? step.what.call->gpu : gpu_of(stream);
    Piece piece{step.work, step.what, {begin}, gpu};
    Task ahead = 0;
    for (const size_t each : step.after) {
      const CUgraphExec_st::Step& before = executable.steps[each];
      const bool only = step.what.programmatic && step.after.size() == 1;
      const bool early = before.what.kind == Kind::kLaunch && (only || each == step.ahead);
      (early ? ahead : piece.after.emplace_back()) = before.last;
    }
    if (step.last != 0) piece.after.push_back(step.last);
    if (step.what.waits != nullptr) piece.after.push_back(step.what.waits->task);
    order_operation(++last_task, step.line, gpu, step.what.kind, step.asked, " of a graph", ahead,
                    piece.after);
    if (cudaEvent_t event = step.what.records) {
      event->capture = nullptr;
      event->recorded = true;
      event->task = last_task;
    }
    if (ahead != 0) piece.after.push_back(ahead);
    piece.ahead = ahead;
    step.last = last_task;
    keep(std::move(piece));
    all.push_back(last_task);
  }
  for (const Task each : all) wait_before_next(stream, each);
  executable.last = mark(stream);
}

bool done_before_return() {
  return at_once != 0 && asked_for.size() <= at_once && !function_runs_beside();
}

Task mark(cudaStream_t stream) {
  return enqueue(stream, nothing, {Kind::kNothing});
}

void wait_before_next(cudaStream_t stream, Task task) {
  KB_ONE_CALL;
  line_of(named(stream)).waits.push_back(task);
}

bool is_pending(Task task) {
  KB_ONE_CALL;
  return pending.count(task) != 0 || (function_runs_beside() && running.back() == task);
}

bool first_asked(Task task) {
  KB_ONE_CALL;
  static std::set<Task> asked;
  return pending.count(task) != 0 && asked.insert(task).second;
}

Task last_of(cudaStream_t stream) {
  KB_ONE_CALL;
  const auto found = lines.find(named(stream));
  return found != lines.end() ? found->second.last : 0;
}

// CUDA runtime API, cudaStreamSynchronize: it waits for the operations of the stream. What the
// legacy stream was given after the last of them is none: a blocking stream's synchronization
// returned at once, an event recorded in that stream did not (one H200, CUDA 13.0).
Task end_of(cudaStream_t stream) {
  KB_ONE_CALL;
  stream = named(stream);
  const Line& line = line_of(stream);
  const bool ends = stream != default_stream(line.gpu) && line.waits.empty();
  return ends ? line.last : mark(stream);
}

namespace {

// Each behind what it comes after.
std::vector<Task> in_turn(std::set<Task> left) {
  std::vector<Task> found;
  const auto ready = [&left](Task each) {
    const std::vector<Task>& after = pending.at(each).after;
    return std::none_of(after.begin(), after.end(), [&left](Task of) { return left.count(of); });
  };
  while (!left.empty()) {
    const Task next = order == Order::kNewestFirst
                          ? *std::find_if(left.rbegin(), left.rend(), ready)
                          : *left.begin();
    left.erase(next);
    found.push_back(next);
  }
  return found;
}

cudaError_t finish(Task task, bool known) {
  KB_ONE_CALL;
  if (refused_in_host_function()) return cudaErrorNotPermitted;
  wait_for_function();
  given = 0;
  std::set<Task> needed;
  std::vector<Task> open{task};
  while (!open.empty()) {
    const auto found = pending.find(open.back());
    open.pop_back();
    if (found == pending.end() || !needed.insert(found->first).second) continue;
    open.insert(open.end(), found->second.after.begin(), found->second.after.end());
  }
  const bool runs = std::any_of(running.begin(), running.end(),
                                [&needed](Task each) { return needed.count(each) != 0; });
  if (runs && kernel_waits_for_host()) gpu_goes_on(nullptr, true);
  cudaError_t status = cudaSuccess;
  unwatch();
  for (const Task each : in_turn(needed)) {
    const auto found = pending.find(each);
    if (found == pending.end()) continue;  // done beside another
    const cudaError_t ended = done(found, known);
    if (ended != cudaSuccess) status = ended;
  }
  if (known) host_knows(task);
  if (pending.empty() && running.empty()) {
    all_done();
    release_retired();
  }
  // Not in the middle of what goes on: its accesses would trap.
  if (running.empty() || kernel_waits_for_host()) watch_pending();
  if (failed_unseen != cudaSuccess) {
    // As on a GPU, whose calls all say so from then on. A host that polls would do so for ever.
    if (status == cudaSuccess) status = failed_unseen;
    if (orders()) watch_all();
  }
  return remembered(status);
}

}  // namespace

cudaError_t finish(Task task) {
  const cudaError_t status = finish(task, true);
  host_is_there();
  return status;
}

void call_first_function() {
  const auto function = std::find_if(pending.begin(), pending.end(), [](const auto& each) {
    return each.second.what.calls_host && !each.second.done;
  });
  if (running.empty() && function != pending.end()) finish(function->first);
}

void watch_pending() {
  if (!orders()) return;
  for (const auto& [number, piece] : pending) watch_reaches(piece);
}

Task running_now() {
  return running.back();
}

void begin_running_again() {
  order_begins(running.back());
}

bool nothing_to_do() {
  KB_ONE_CALL;
  return running.empty() && std::all_of(pending.begin(), pending.end(),
                                        [](const auto& each) { return each.second.done; });
}

namespace {

void finish_unseen() {
  KB_ONE_CALL;
  std::vector<Task> all;
  for (const auto& [task, piece] : pending) all.push_back(task);
  std::for_each(all.rbegin(), all.rend(), [](Task each) {
    const auto found = pending.find(each);
    if (found != pending.end() && !found->second.done) finish(each, false);
  });
  while (pending.size() > kMostPending && pending.begin()->second.done) {
    pending.erase(pending.begin());
  }
}

}  // namespace

void do_unseen() {
  KB_ONE_CALL;
  if (running.empty() || kernel_waits_for_host()) gpu_goes_on(finish_unseen, false);
}

namespace {

bool does_something(Task task) {
  return pending.at(task).what.kind != Kind::kNothing;
}

// Waits for words that go on, within which what may end them is done.
struct Wait {
  Task task;
  const void* word;
  std::function<bool()> is_over;
};
std::vector<Wait> waits_for_words;

// What is pending and not behind what is done now, nor behind a wait for a word that goes on.
std::vector<Task> beside_running() {
  std::set<Task> behind(running.begin(), running.end());
  for (const Wait& each : waits_for_words) {
    if (each.is_over()) behind.erase(each.task);
  }
  std::vector<Task> beside;
  for (const auto& [task, piece] : pending) {
    const bool after = std::any_of(piece.after.begin(), piece.after.end(),
                                   [&behind](Task each) { return behind.count(each) != 0; });
    if (after || waits_for_word(piece)) {
      behind.insert(task);
    } else if (!piece.done) {
      beside.push_back(task);
    }
  }
  return beside;
}

// Launches that may begin before what is done now has ended.
std::vector<Task> dependents_of_running() {
  std::vector<Task> found;
  for (const auto& [task, piece] : pending) {
    if (piece.ahead == 0 || piece.ahead != running.back()) continue;
    const Task ahead = piece.ahead;
    const bool waits = std::any_of(piece.after.begin(), piece.after.end(), [ahead](Task each) {
      return each != ahead && pending.count(each) != 0 && does_something(each);
    });
    if (!waits) found.push_back(task);
  }
  return found;
}

}  // namespace

// What is pending beside what is done now: how many operations; the first `perform` of them are
// done.
size_t others(size_t perform) {
  const std::vector<Task> beside = beside_running();
  const auto count =
      static_cast<size_t>(std::count_if(beside.begin(), beside.end(), does_something));
  if (perform == 0 || count == 0) return count;
  for (const Task each : beside) {
    const auto found = pending.find(each);
    if (found == pending.end()) continue;
    if (does_something(each) && perform-- == 0) break;
    remembered(done(found));
  }
  order_begins(running.back());
  return count;
}

bool does_one_in_turn() {
  for (const Wait& each : waits_for_words) {
    if (!each.is_over()) continue;
    order_begins(each.task);
    order_acquires(each.word);
  }
  bool any = false;
  for (const Task each : beside_running()) {
    const auto found = pending.find(each);
    if (any || found == pending.end() || found->second.what.kind == Kind::kLaunch) continue;
    any = does_something(each);
    remembered(done(found));
  }
  order_begins(running.back());
  return any;
}

cudaError_t do_within_running(const std::vector<Child>& children, int gpu,
                              const std::string& words) {
  static std::vector<uint32_t> kept;  // lines of those that are over are used again
  static size_t used = 0;
  const Task whole = running.back();
  const size_t used_before = used;
  std::map<std::pair<uint64_t, uint64_t>, std::pair<uint32_t, Task>> on;
  std::vector<Task> tasks(children.size()), before_tail{whole};
  for (const bool tail : {false, true}) {
    for (size_t at = 0; at < children.size(); ++at) {
      const Child& each = children[at];
      if (each.tail != tail) continue;
      auto& [line, last] = on[each.line];
      if (line == 0 && used == kept.size()) kept.push_back(++last_line);
      if (line == 0) line = kept[used++];
      std::vector<Task> after = before_tail;
      if (!tail) {
        order_launch(++last_task, line, whole, each.word);
        after = {last_task};
      }
      if (last != 0) after.push_back(last);
      last = tasks[at] = ++last_task;
      if (!tail) before_tail.push_back(last);
      order_operation(last, line, gpu, Kind::kLaunch, {each.what.kernel}, words, 0, after);
    }
  }
  order_within(whole, tasks);
  cudaError_t status = cudaSuccess;
  for (const bool tail : {false, true}) {
    for (size_t at = 0; at < children.size() && status == cudaSuccess; ++at) {
      if (children[at].tail != tail) continue;
      status = perform(tasks[at], children[at].work);
    }
  }
  used = used_before;
  return status;
}

namespace {

// What streams have written to words: the values, and the tasks; 0 for one without a fence.
std::map<const void*, std::vector<std::pair<uint64_t, Task>>> written;

}  // namespace

uint64_t Word::now() const {
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

void word_written(const Word& word, uint64_t before, bool hands_on) {
  auto& values = written[word.at];
  if (!values.empty() && values.back().first != before) values.clear();  // set by something else
  values.emplace_back(word.now(), hands_on ? running.back() : 0);
}

namespace {

// Of a wait that goes on and those that have not begun, the first that the program has asked for:
// the others may wait for what comes behind it.
const void* first_asked_for(Task goes_on, const void* pc) {
  const auto first = std::find_if(pending.begin(), pending.end(), [](const auto& each) {
    return each.second.what.ready && !each.second.what.ready();
  });
  return first == pending.end() || first->first > goes_on ? pc : first->second.what.waits_at;
}

// CUDA driver API, "Stream Memory Operations". What writes the word comes first, and as late as it
// may; a kernel may write it, too. The first value that was right, and stayed so, ends the wait.
cudaError_t see_word(const Word& word, const std::function<bool(uint64_t)>& is_right,
                     const void* pc) {
  const Task waits = running.back();
  const auto& values = written[word.at];
  while (!is_right(word.now())) {
    const std::vector<Task> beside = beside_running();
    const auto writes = std::find_if(beside.begin(), beside.end(), [&word](Task each) {
      return pending.at(each).what.word == word.at;
    });
    if (writes != beside.end()) {
      finish(*writes, false);
      order_begins(waits);
    } else if (others(1) == 0) {
      const auto had = std::find_if(values.rbegin(), values.rend(),
                                    [&](const auto& each) { return is_right(each.first); });
      if (had != values.rend()) {
        host_found(true, pc,
                   "a stream waits for a value that a word has had before, and nothing orders what "
                   "has replaced it behind the wait");
        if (had->second != 0) order_after(waits, had->second);
        return cudaSuccess;  // as if it had been seen
      }
      host_found(true, first_asked_for(waits, pc),
                 "a stream waits for a value of a word that nothing writes");
      stuck = true;
      return cudaErrorLaunchFailure;
    }
  }
  for (const Task each : beside_running()) {
    const What& what = pending.at(each).what;
    if (what.word != word.at || is_right(what.value)) continue;
    host_found(true, pc,
               "a stream waits for a value of a word, and a write that nothing orders behind the "
               "wait may replace it before");
    break;
  }
  Task by = 0;
  for (auto each = values.rbegin(); each != values.rend() && is_right(each->first); ++each) {
    by = each->second;
  }
  if (by != 0) order_after(waits, by);
  order_acquires(word.at);
  return cudaSuccess;
}

}  // namespace

cudaError_t wait_for_word(const Word& word, const std::function<bool(uint64_t)>& is_right,
                          const void* pc) {
  waits_for_words.push_back({running.back(), word.at, [&] { return is_right(word.now()); }});
  const cudaError_t status = see_word(word, is_right, pc);
  waits_for_words.pop_back();
  return status;
}

cudaError_t do_nodes_within(CUgraphExec_st& body, std::vector<Task>& after) {
  const Task whole = running.back();
  const std::vector<size_t>& order = body.orders[body.launches++ % 2];
  const std::vector<Task> ahead = after;
  std::vector<Task> made;
  for (const size_t at : order) {
    CUgraphExec_st::Step& step = body.steps[at];
    if (step.line == 0) step.line = ++last_line;
    std::vector<Task> behind = ahead;
    for (const size_t each : step.after) behind.push_back(body.steps[each].last);
    const int gpu = step.what.call != nullptr ? step.what.call->gpu : current_gpu();
    made.push_back(step.last = ++last_task);
    order_operation(step.last, step.line, gpu, step.what.kind, step.asked, " of a conditional node",
                    0, behind);
  }
  order_within(whole, made);
  cudaError_t status = cudaSuccess;
  for (size_t i = 0; i < order.size() && status == cudaSuccess; ++i) {
    status = perform(made[i], body.steps[order[i]].work);
  }
  after.insert(after.end(), made.begin(), made.end());
  return status;
}

uint32_t condition_within(const uint32_t* value, const Asked& asked, uint32_t& line,
                          std::vector<Task>& after) {
  if (line == 0) line = ++last_line;
  if (after.empty()) after = {running.back()};
  order_operation(++last_task, line, current_gpu(), Kind::kTransfer, asked, " (its condition)", 0,
                  after);
  after.push_back(last_task);
  order_within(running.back(), {last_task});
  order_begins(last_task);
  touched(value, sizeof *value, false);
  order_ends();
  return *value;
}

namespace {

// One stream after another, the last one first or the first one: no program can rely on an order.
template <typename Of>
cudaError_t finish_those(const Of& of) {
  KB_ONE_CALL;
  if (refused_in_host_function()) return cudaErrorNotPermitted;
  cudaError_t status = cudaSuccess;
  for (;;) {
    const auto first = std::find_if(pending.begin(), pending.end(), of);
    if (first == pending.end()) return status;
    const auto last = std::find_if(pending.rbegin(), pending.rend(), of);
    const cudaError_t ended =
        kb::cuda::finish(order == Order::kOldestFirst ? first->first : last->first);
    if (ended != cudaSuccess) status = ended;
  }
}

}  // namespace

cudaError_t finish_all() {
  return finish_those([](const auto&) { return true; });
}

cudaError_t finish_gpu(int gpu) {
  return finish_those([gpu](const auto& each) { return each.second.gpu == gpu; });
}

cudaError_t done_at_once(Work work, Gpus gpus) {
  return finish(enqueue(nullptr, std::move(work), of_gpus(gpus)));
}

std::string dropped() {
  std::string names;
  for (const auto& [task, piece] : pending) {
    if (piece.what.kind == Kind::kNothing || piece.done) continue;
    const std::string& kernel = piece.what.kernel;
    names += (names.empty() ? "" : "\n") + (kernel.empty() ? "a copy" : kernel);
  }
  pending.clear();
  return names;
}

}  // namespace kb::cuda

// For a launch that hangs: how many operations are pending that nothing orders behind what is done
// now. The first `perform` of them are done.
extern "C" size_t kb_cudart_others(size_t perform) {
  if (perform == SIZE_MAX) {  // from now on they are done while it waits
    kb::cuda::streams_answer();
    return 0;
  }
  return kb::cuda::others(perform);
}

// The first so many operations that the program asks for are done before their call returns.
extern "C" void kb_cudart_at_once(size_t count) {
  kb::cuda::at_once = count;
}

// The number of an Order.
extern "C" void kb_cudart_order(int order) {
  kb::cuda::order = static_cast<kb::cuda::Order>(order);
}

// How many it has asked for; `at` from 0: the call or kernel of one, whose site is number 0 then.
extern "C" size_t kb_cudart_asked(size_t at, const char** name) {
  using namespace kb::cuda;
  if (at < asked_for.size()) {
    *name = asked_for[at].name.c_str();
    keep_site(0, asked_for[at].pc);
  }
  return asked_for.size();
}

// Where the program has asked for it.
extern "C" const void* kb_cudart_asked_from(size_t at) {
  using namespace kb::cuda;
  return at < asked_for.size() ? asked_for[at].pc : nullptr;
}

// The `at`-th of the operations beside what is done now, and of the launches behind it that may
// begin early (2): its kernel, and CTAs, threads and dynamic shared memory of a launch (1);
// 3 for anything else, 0 for no more.
extern "C" int kb_cudart_neighbour(size_t at, int* module, const char** kernel, uint64_t* form) {
  using namespace kb::cuda;
  std::vector<std::pair<int, Task>> found;
  for (const Task each : beside_running()) {
    if (does_something(each)) found.emplace_back(1, each);
  }
  for (const Task each : dependents_of_running()) found.emplace_back(2, each);
  if (at >= found.size()) return 0;
  const What& what = pending.at(found[at].second).what;
  if (what.call == nullptr) return 3;
  const Form& of = what.call->form;
  *module = what.call->kernel->module;
  *kernel = what.call->kernel->name.c_str();
  const auto count = [](dim3 each) { return uint64_t{each.x} * each.y * each.z; };
  form[0] = count(of.grid);
  form[1] = count(of.block);
  form[2] = of.shared;
  return found[at].first;
}
