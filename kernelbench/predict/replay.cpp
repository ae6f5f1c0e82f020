// Replays the records of launches (timing.hpp of the emulator) in virtual time: a clock for each
// warp, waits and arrivals along barriers (max-plus), and servers that serve whoever comes first:
// by SM the TMA unit, the port to L2 (bulk copies both ways), the tensor core and the load/store
// unit; by GPU L2 and HBM. Costs are cycles unless their name says otherwise.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

enum class Op : uint8_t {
  kLaunch,
  kArrive,
  kWait,
  kLoad,
  kStore,
  kCommitGroup,
  kWaitGroup,
  kBarrier,
  kMma,
  kTmemCopy,
  kTensorCommit,
  kTmemLoad,
  kTmemWait,
  kTmemStore,
  kClusterArrive,
  kClusterWait,
  kMapPublish,
  kMapAcquire,
  kTryCancel,
  kReduce,
  kAtomic,
  kWordWait,
  kAccesses,
  kShuffle,
  kFence,
  kAsyncCopy,
  kAsyncCommit,
  kAsyncWait,
  kWarpgroupMma,
  kWarpgroupCommit,
  kWarpgroupWait,
  kGridWait,
  kGridTrigger,
};
enum By : uint32_t { kThread, kCopy, kTensor, kLaunchControl, kAsyncCopies };
// What a stretch of the critical path is; names in model.py.
enum Cause : int {
  kIssue,
  kStart,
  kArrival,
  kNamedBarrier,
  kClusterBarrier,
  kStoreRead,
  kTensorCore,
  kTensorMap,
  kCancel,
  kWord,
  kAccess,
  kTmem,
  kCopyLatency,
  kCopyHbm,
  kCopyL2,
  kCopyPort,
  kCopyTma,
  kGrid,
  kInstructions,
  kCauses,
};
struct Record {
  Op op;
  uint8_t lane;
  uint16_t warp;
  uint32_t cta;
  uint64_t a, b;
  uint32_t c, x;
  uint64_t pc;
};
static_assert(sizeof(Record) == 40);

// What a path of code between records has: instructions in all, and by class as the device issues
// them; of its longest chain of dependences, those of each latency.
struct Stretched {
  uint32_t all, floats, integers, special, chain, chain_special, chain_loads, fresh;
};

// In the order of model.py's COSTS.
struct Costs {
  double clock_ghz, sms, shared_per_sm, hbm_gb_s, l2_gb_s, port_bytes, latency_l2, latency_hbm;
  double instruction, issue, arrive, wait, tma_issue, store_latency, store_kib, mma_column,
      mma_least;
  double mma_latency, tmem_copy, tmem_latency, tmem_register, tmem_store_register;
  double shared_load, shared_store, global_load, global_load_more, global_store;
  double map_publish, map_acquire, try_cancel, cluster_barrier, reduce, word, atomic, shuffle;
  double fence_gpu, cta_start, launch, end;
  double wgmma_column, wgmma_shared, wgmma_latency, async_copy, call;
  double registers;  // of an SM; 0: no limit
  // Of an instruction: cycles of a quarter of the SM by class, 0: all classes are alike; latencies.
  double float_slot, integer_slot, special_slot, special_latency, shared_latency, handoff, fetch;
};

// An arrival: `lag` cycles pass until a waiter sees it; `pc`: of what arrives, 0: the waiter's.
struct Arrival {
  double at = 0;
  Cause cause = kIssue;
  int source = -1;
  double source_at = 0, lag = 0;
  uint64_t pc = 0;
};
// A phase of a barrier, or a version of a word: the last arrival it needs.
struct Phase {
  int needed = 0;
  Arrival last;
  std::vector<int> waiting;
  bool over = false;
};
// A stretch of a warp's time; `source`: the warp that it waited for, or -1 for its own work.
struct Stretch {
  double from, to;
  Cause cause;
  int source;
  double source_at;
  uint64_t pc;
};
struct WarpState {
  uint32_t cta = 0;
  std::vector<uint32_t> records;
  size_t next = 0;
  double at = 0, begun = 0;
  int after = -1;  // the warp whose end made room for this one's CTA
  double tmem_pipe = 0, tmem_done = 0;
  double open_group = 0;
  std::vector<double> groups;
  double open_copies = 0, open_products = 0;
  bool computed = false;                 // the instructions of the record that comes next
  std::vector<double> copies, products;  // by group: cp.async, wgmma
  uint64_t copy_pc = 0, product_pc = 0;
  std::vector<Stretch> stretches;
};
// What costs nothing: a cause at some places, in ascending order. Issue and start have no place.
struct Free {
  int cause;
  const uint64_t *first, *last;
};
struct Bubble {
  uint64_t pc;
  uint32_t cause, pad;
  double cycles;
};
// A part of the critical path.
struct Part {
  double from, to;
  Cause cause;
  uint64_t pc;
};
// What a warp of a launch's first CTA, or a unit of its SM, does or waits for; times in us. The
// rows behind the warps': tensor core, bulk copies, the launch's critical path. Cause kCauses: a
// warp is there.
struct Span {
  uint32_t launch, row, cause, pad;
  uint64_t pc;
  double from, to;
};
struct Spans {
  Span* at;
  uint64_t room, count;
};

uint64_t mixed(uint64_t a, uint64_t b, uint64_t kind) {
  uint64_t h =
      a * 0x9e3779b97f4a7c15ull ^ (b + kind * 0x632be59bd9b4e019ull) * 0xc2b2ae3d27d4eb4full;
  return h ^ h >> 29;
}

class Replay {
 public:
  // `before`: when the grid before ends, if this one may start earlier.
  Replay(const Record* records, const Stretched* paths, std::vector<double>& fetched, size_t first,
         size_t last, const Costs& costs, const Free& free, double before,
         std::unordered_map<uint64_t, double>& in_l2, bool units)
      : r_(records),
        paths_(paths),
        fetched_(fetched),
        c_(costs),
        free_(free),
        in_l2_(in_l2),
        before_(before),
        log_units_(units) {
    const Record& launch = records[first];
    grid_ = static_cast<uint32_t>(launch.a);
    const auto threads = static_cast<uint32_t>(launch.b & 0xffff);
    cluster_ = std::max<uint32_t>(1, static_cast<uint32_t>(launch.b >> 16));
    warps_ = (threads + 31) / 32;
    sms_ = static_cast<size_t>(c_.sms);
    const int by_shared = static_cast<int>(c_.shared_per_sm / (launch.c + 1024));
    int per_sm =
        std::max(1, std::min({static_cast<int>(2048 / std::max(1u, threads)), by_shared, 32}));
    if (c_.registers > 0 && launch.pc > 0) {
      // Each quarter of an SM gives a warp 256 registers at a time.
      const uint64_t of_warp = (launch.pc * 32 + 255) / 256 * 256;
      const int warps = 4 * static_cast<int>(c_.registers / 4 / static_cast<double>(of_warp));
      per_sm = std::max(1, std::min(per_sm, warps / static_cast<int>(warps_)));
    }
    resident_ =
        static_cast<uint32_t>(std::min<uint64_t>(grid_, sms_ / cluster_ * cluster_ * per_sm));
    hbm_rate_ = c_.hbm_gb_s / c_.clock_ghz;
    l2_rate_ = c_.l2_gb_s / c_.clock_ghz;
    w_.resize(size_t{grid_} * warps_);
    for (size_t i = 0; i < w_.size(); ++i) w_[i].cta = static_cast<uint32_t>(i / warps_);
    for (auto* server : {&tma_, &tensor_, &port_, &lsu_}) server->resize(sms_);
    mma_pc_.resize(sms_);
    for (auto* server : {&quarter_, &issue_}) server->resize(4 * sms_);
    triggered_.resize(grid_);
    sm_.resize(grid_);
    commit_ = c_.mma_latency + c_.arrive;
    if (free.cause == kIssue) {
      for (double* each : {&c_.issue, &c_.arrive, &c_.reduce, &c_.shuffle, &c_.tmem_store_register})
        *each = 0;
    }
    if (free.cause == kStart) c_.cta_start = 0;
    live_.assign(grid_, static_cast<int>(warps_));
    ended_.resize(grid_);
    left_.assign(grid_ / cluster_ + 1, cluster_);
    sort_records(first + 1, last);
  }

  // Cycles of the launch; negative: warps wait for what never comes.
  double run() {
    for (; started_ < resident_; ++started_) start(started_, started_ % sms_, {0, -1});
    while (!ready_.empty()) {
      const int warp = ready_.top().second;
      w_[warp].at = ready_.top().first;
      ready_.pop();
      if (advance(warp)) finished(warp);
    }
    return finished_ == w_.size() ? end_ : -1;
  }

  // Of the last warp: when and which.
  std::pair<double, int> last_end() const {
    std::pair<double, int> last{w_[0].at, 0};
    for (size_t i = 1; i < w_.size(); ++i) {
      if (w_[i].at > last.first) last = {w_[i].at, static_cast<int>(i)};
    }
    return last;
  }

  // When every CTA has let the next grid start, or has ended, and by which warp.
  std::pair<double, int> last_trigger() const {
    std::pair<double, int> last{0, 0};
    for (uint32_t cta = 0; cta < grid_; ++cta) {
      if (triggered_[cta].first == 0) return last_end();
      last = std::max(last, triggered_[cta]);
    }
    return last;
  }

  // What a warp did and waited for up to a time, the last first. True: it has waited for the grid
  // before, up to whose end nothing is added.
  bool critical_path(std::pair<double, int> until, std::vector<Part>& out) const {
    auto [at, warp] = until;
    const auto back_to = [&](double from, Cause cause, uint64_t pc) {
      out.push_back({from, at, cause, pc});
      at = from;
    };
    while (at > 0) {
      const std::vector<Stretch>& all = w_[warp].stretches;
      auto it = std::upper_bound(all.begin(), all.end(), at + 1e-9,
                                 [](double t, const Stretch& s) { return t < s.to; });
      bool own = true, jumped = false;
      while (it != all.begin()) {
        const Stretch& s = *--it;
        back_to(std::min(at, s.to), kIssue, 0);
        if (s.cause == kGrid) return true;
        if (s.source < 0) {
          back_to(s.from, s.cause, s.pc);
          continue;
        }
        own = false;
        jumped = s.source_at < at;
        back_to(s.source_at, s.cause, s.pc);
        warp = s.source;
        break;
      }
      // All of the warp's time: its CTA began when another one ended.
      const WarpState& w = w_[warp];
      if (own && w.after >= 0) {
        back_to(std::min(at, w.begun), kIssue, 0);
        back_to(std::max(0.0, at - c_.cta_start), kStart, 0);
        warp = w.after;
        jumped = true;
      }
      if (!jumped) break;
    }
    at = std::max(at, 0.0);
    back_to(std::max(0.0, std::min(at, w_[warp].begun)), kIssue, 0);
    back_to(0, kStart, 0);
    return false;
  }

  // What the first CTA and its SM did, in us from `began`, which is in cycles.
  void spans(uint32_t launch, double began, const std::vector<Part>& path, Spans& out) const {
    const auto put = [&](uint32_t row, int cause, uint64_t pc, double from, double to) {
      const auto us = [&](double cycles) { return (began + cycles) / c_.clock_ghz / 1e3; };
      if (out.count < out.room)
        out.at[out.count] = {launch, row, static_cast<uint32_t>(cause), 0, pc, us(from), us(to)};
      ++out.count;
    };
    for (uint32_t warp = 0; warp < warps_; ++warp) {
      put(warp, kCauses, 0, w_[warp].begun, w_[warp].at);
      for (const Stretch& s : w_[warp].stretches) put(warp, s.cause, s.pc, s.from, s.to);
    }
    for (uint32_t unit = 0; unit < 2; ++unit)
      for (const Stretch& s : units_[unit]) put(warps_ + unit, s.cause, s.pc, s.from, s.to);
    for (const Part& p : path)
      if (p.to > p.from) put(warps_ + 2, p.cause, p.pc, p.from, p.to);
  }

 private:
  // What the tensor core (0) or the TMA unit (1) of the first CTA's SM was busy with.
  void unit(int which, size_t sm, double from, double to, Cause cause, uint64_t pc) {
    if (log_units_ && sm == 0) units_[which].push_back({from, to, cause, -1, 0, pc});
  }

  // By warp; and how many arrivals each phase needs. Of arrivals by several lanes of a warp lane
  // 0's stands for all. A collective of lane 0 takes place when the other lanes have come: what
  // they did meanwhile was before it.
  void sort_records(size_t first, size_t last) {
    std::unordered_set<uint64_t> by_lane0;
    const auto arrival = [](const Record& r) {
      return mixed(mixed(r.a, r.b, 9), uint64_t{r.cta} * 64 + r.warp, 10);
    };
    for (size_t i = first; i < last; ++i) {
      if (r_[i].op == Op::kArrive && by_lane(r_[i]) && r_[i].lane == 0)
        by_lane0.insert(arrival(r_[i]));
    }
    phases_.reserve((last - first) / 3);
    for (size_t i = first; i < last; ++i) {
      const Record& r = r_[i];
      if (r.cta >= grid_) continue;
      if (r.op == Op::kArrive && by_lane(r) && r.lane != 0 && by_lane0.count(arrival(r))) continue;
      std::vector<uint32_t>& own = w_[size_t{r.cta} * warps_ + r.warp].records;
      own.push_back(static_cast<uint32_t>(i));
      if (r.lane != 0) {
        size_t k = own.size() - 1;
        while (k > 0 && r_[own[k - 1]].lane != 0) --k;
        const Op before = k > 0 ? r_[own[k - 1]].op : Op::kLaunch;
        if (before == Op::kBarrier || before == Op::kShuffle) {
          std::rotate(own.begin() + static_cast<long>(k) - 1, own.begin() + static_cast<long>(k),
                      own.end());
        }
      }
      if (const uint64_t id = arrives_at(r)) ++phases_[id].needed;
    }
  }

  static bool by_lane(const Record& r) { return r.c == kThread || r.c == kAsyncCopies; }

  // What a record arrives at; 0: nothing.
  static uint64_t arrives_at(const Record& r) {
    switch (r.op) {
      case Op::kArrive:
        return mixed(r.a, r.b, 1);
      case Op::kBarrier:
        return mixed(uint64_t{r.cta} << 8 | r.a, r.b, 2);
      case Op::kClusterArrive:
        return mixed(r.a, r.b, 3);
      case Op::kReduce:
        return r.a != 0 ? mixed(r.a, r.b, 4) : 0;
      case Op::kAtomic:
        return mixed(r.a, r.b, 4);
      default:
        return 0;
    }
  }

  void start(uint32_t cta, size_t sm, std::pair<double, int> after) {
    sm_[cta] = sm;
    for (uint32_t i = 0; i < warps_; ++i) {
      const auto warp = static_cast<int>(size_t{cta} * warps_ + i);
      w_[warp].at = w_[warp].begun = after.first + c_.cta_start;
      w_[warp].after = after.second;
      ready_.push({w_[warp].at, warp});
    }
  }

  void finished(int warp) {
    const WarpState& s = w_[warp];
    ++finished_;
    end_ = std::max(end_, s.at);
    ended_[s.cta] = std::max(ended_[s.cta], {s.at, warp});
    const uint32_t cluster = s.cta / cluster_, first = cluster * cluster_;
    if (--live_[s.cta] > 0 || --left_[cluster] > 0) return;
    const auto last = *std::max_element(ended_.begin() + first, ended_.begin() + first + cluster_);
    for (uint32_t k = 0; k < cluster_ && started_ < grid_; ++k, ++started_)
      start(started_, sm_[first + k], last);
  }

  void resume(int warp, const Phase& phase, uint64_t pc) {
    WarpState& s = w_[warp];
    const Arrival& last = phase.last;
    if (last.pc != 0) pc = last.pc;
    const double at = last.at + cost(last.cause, pc, last.lag), seen = std::max(s.at, at);
    const bool handed = at > s.at && last.cause == kArrival && c_.handoff > 0;
    const double wait = cost(at > s.at ? last.cause : kIssue, pc, handed ? c_.handoff : c_.wait);
    if (at > s.at) {
      s.stretches.push_back({s.at, seen + wait, last.cause, last.source, last.source_at, pc});
    }
    s.at = seen + wait;
  }

  void arrive(uint64_t id, const Arrival& arrival) {
    Phase& phase = phases_[id];
    if (arrival.at >= phase.last.at) phase.last = arrival;
    if (--phase.needed > 0) return;
    phase.over = true;
    for (const int warp : phase.waiting) {
      resume(warp, phase, r_[w_[warp].records[w_[warp].next - 1]].pc);
      ready_.push({w_[warp].at, warp});
    }
    phase.waiting.clear();
  }

  // False: the warp sleeps until the phase is over.
  bool wait_for(uint64_t id, int warp, uint64_t pc) {
    const auto found = phases_.find(id);
    if (found == phases_.end()) return true;
    if (!found->second.over) {
      found->second.waiting.push_back(warp);
      return false;
    }
    resume(warp, found->second, pc);
    return true;
  }

  bool is_free(Cause cause, uint64_t pc) const {
    return cause == free_.cause &&
           (cause == kIssue || cause == kStart || std::binary_search(free_.first, free_.last, pc));
  }
  double cost(Cause cause, uint64_t pc, double cycles) const {
    return is_free(cause, pc) ? 0 : cycles;
  }

  void spend(WarpState& s, double until, Cause cause, uint64_t pc) {
    if (until <= s.at || is_free(cause, pc)) return;
    s.stretches.push_back({s.at, until, cause, -1, 0, pc});
    s.at = until;
  }

  // The arrivals behind an asynchronous operation's record are its own.
  const Record* own_arrival(const WarpState& s, By by) const {
    if (s.next == s.records.size()) return nullptr;
    const Record& r = r_[s.records[s.next]];
    return r.op == Op::kArrive && r.c == by ? &r : nullptr;
  }

  static double serve(double& server, double at, double cost) {
    return server = std::max(server, at) + cost;
  }

  void load(WarpState& s, const Record& r, int warp) {
    const double issued = s.at += c_.issue, bytes = static_cast<double>(r.b);
    const size_t sm = sm_[s.cta];
    const double sent = serve(tma_[sm], issued, cost(kCopyTma, r.pc, c_.tma_issue));
    Fetched from{sent + cost(kCopyLatency, r.pc, c_.latency_l2), 0, false};
    if (r.x != 0 || r.a != 0) from = fetch(r.a, bytes, r.x >> 31 != 0, sent, r.pc);
    uint32_t mask = r.c;
    for (const Record* each; (each = own_arrival(s, kCopy)) != nullptr; ++s.next) {
      uint32_t to = s.cta;
      if (cluster_ > 1 && r.c != 1 && mask != 0) {
        to = s.cta - s.cta % cluster_ + std::min<uint32_t>(__builtin_ctz(mask), cluster_ - 1);
        mask &= mask - 1;
      }
      double& port = port_[sm_[to]];
      const double passing = cost(kCopyPort, r.pc, bytes / c_.port_bytes);
      port = std::max(port, from.at - passing) + passing;
      const double landed = std::max(from.at, port), at_port = landed - from.at;
      const double at_tma = sent - issued - c_.tma_issue;
      const Cause cause = at_port > from.queued && at_port > at_tma && at_port > 50 ? kCopyPort
                          : from.queued > 50 && from.queued > at_tma
                              ? (from.by_hbm ? kCopyHbm : kCopyL2)
                          : at_tma > 50 ? kCopyTma
                                        : kCopyLatency;
      unit(1, sm_[to], issued, landed, cause, r.pc);
      arrive(arrives_at(*each), {landed, cause, warp, issued, 0, r.pc});
    }
  }

  // When bytes asked for at `sent` come, from HBM the first time, later from L2; `queued`: of that
  // the wait for the server.
  struct Fetched {
    double at, queued;
    bool by_hbm;
  };
  Fetched fetch(uint64_t address, double bytes, bool written, double sent, uint64_t pc) {
    const auto part = [&](Cause cause, double cycles) { return cost(cause, pc, cycles); };
    const double latency = part(kCopyLatency, c_.latency_l2);
    const double l2 = serve(l2_, sent, part(kCopyL2, bytes / l2_rate_));
    const uint64_t key = address ^ static_cast<uint64_t>(bytes) << 48;
    const auto known = in_l2_.find(key);
    if (known == in_l2_.end() && !written) {
      const double hbm = serve(hbm_, sent, part(kCopyHbm, bytes / hbm_rate_));
      const double at = std::max(hbm, l2) + part(kCopyLatency, c_.latency_hbm);
      in_l2_[key] = at;
      return {at, std::max(hbm, l2) - sent, hbm > l2};
    }
    const double landed = known == in_l2_.end() ? 0 : known->second;
    const double at = std::max(l2 + latency, landed);
    return {at, at - latency - sent, landed > l2 + latency};
  }

  // A warp's cp.async; only lane 0's address is known.
  void async_copy(WarpState& s, const Record& r) {
    s.at += cost(kIssue, 0, c_.async_copy);
    s.copy_pc = r.pc;
    if (r.b == 0) return;
    const double bytes = 32.0 * static_cast<double>(r.b);
    const double passing = cost(kCopyPort, r.pc, bytes / c_.port_bytes);
    const double at = fetch(r.a, bytes, r.x >> 31 != 0, s.at, r.pc).at;
    double& port = port_[sm_[s.cta]];
    port = std::max(port, at - passing) + passing;
    s.open_copies = std::max({s.open_copies, at, port});
  }

  // The oldest groups, all but `pending`.
  static double done(const std::vector<double>& groups, uint64_t pending) {
    double at = 0;
    for (size_t i = 0; i + pending < groups.size(); ++i) at = std::max(at, groups[i]);
    return at;
  }

  // A warp's quarter of a wgmma, on the tensor core of its part of the SM.
  void warpgroup_mma(WarpState& s, const Record& r) {
    const double columns = static_cast<double>(r.a);
    s.at += c_.issue;
    const double interval = std::max(
        c_.wgmma_column * columns, r.b != 0 ? 0 : c_.wgmma_shared + c_.wgmma_column * columns / 2);
    double& core = quarter_[4 * sm_[s.cta] + r.warp % 4];
    const double end = serve(core, s.at, cost(kTensorCore, r.pc, interval));
    unit(0, sm_[s.cta], end - interval, end, kTensorCore, r.pc);
    // Fragments of A in its registers keep a warp until the tensor core takes them.
    if (r.b != 0 && c_.handoff > 0) spend(s, end - interval, kTensorCore, r.pc);
    s.open_products = end + cost(kTensorCore, r.pc, c_.wgmma_latency);
    s.product_pc = r.pc;
  }

  void wait_group(WarpState& s, const Record& r) {
    s.at += c_.issue;
    const double read = done(s.groups, r.a);
    if (read > 0) spend(s, read + (r.b != 0 ? 0 : c_.latency_l2), kStoreRead, r.pc);
  }

  // Cycles of a quarter of the SM, and of the warp if no other one computes there.
  std::pair<double, double> computing(const Stretched& n) const {
    if (c_.integer_slot == 0) return {n.all, n.all * c_.instruction};
    return {n.floats * c_.float_slot + n.integers * c_.integer_slot + n.special * c_.special_slot,
            n.chain * c_.instruction + n.chain_special * c_.special_latency +
                n.chain_loads * c_.shared_latency};
  }

  void accesses(WarpState& s, const Record& r) {
    const double shared_loads = static_cast<uint32_t>(r.a), shared_stores = r.a >> 32;
    const double loads = static_cast<uint32_t>(r.b), stores = r.b >> 32;
    // A part of an SM issues an instruction a cycle, a warp by itself fewer. What follows comes
    // when no other warp is earlier.
    s.computed = r.x > 0 && !s.computed;
    if (s.computed) {
      --s.next;
      if (is_free(kInstructions, r.pc)) return;
      const auto [slots, alone] = computing(paths_[r.x - 1]);
      // Code that the SM's warps have not executed comes from memory.
      double& here = fetched_[sm_[s.cta] * (fetched_.size() / sms_) + r.x - 1];
      if (here < 0) here = s.at + paths_[r.x - 1].fresh * c_.fetch;
      spend(s, here, kInstructions, r.pc);
      const double issued = serve(issue_[4 * sm_[s.cta] + r.warp % 4], s.at, slots);
      return spend(s, std::max(issued, s.at + alone), kInstructions, r.pc);
    }
    if (is_free(kAccess, r.pc)) return;
    const double from_l2 = serve(l2_, s.at, 32 * (r.c + stores) / l2_rate_);
    double until = s.at + shared_loads * c_.shared_load;
    if (loads > 0) {
      port_[sm_[s.cta]] += 32.0 * r.c / c_.port_bytes;
      until += c_.global_load + (loads - 1) * c_.global_load_more;
      until = std::max(until, from_l2);
    }
    const double lsu = shared_stores * c_.shared_store + stores * c_.global_store;
    if (lsu > 0) until = std::max(until, serve(lsu_[sm_[s.cta]], s.at, lsu));
    spend(s, until, kAccess, r.pc);
  }

  // One record; false: the warp sleeps.
  bool step(int warp) {
    WarpState& s = w_[warp];
    const Record& r = r_[s.records[s.next++]];
    const size_t sm = sm_[s.cta];
    switch (r.op) {
      case Op::kArrive:
        s.at += c_.arrive;
        if (r.c == kAsyncCopies) {
          const double all = std::max(done(s.copies, 0), s.open_copies);
          arrive(arrives_at(r), {std::max(s.at, all), kCopyLatency, warp, s.at, 0, s.copy_pc});
          break;
        }
        arrive(arrives_at(r), {s.at, kArrival, warp, s.at});
        break;
      case Op::kWait:
        if (r.b != 0) return wait_for(mixed(r.a, r.b - 1, 1), warp, r.pc);
        s.at += cost(kIssue, 0, c_.wait);
        break;
      case Op::kBarrier:
        s.at += c_.issue;
        if (r.x != 0) phases_[arrives_at(r)].waiting.push_back(warp);
        arrive(arrives_at(r), {s.at, kNamedBarrier, warp, s.at});
        return r.x == 0;
      case Op::kClusterArrive:
        s.at += c_.issue;
        arrive(arrives_at(r), {s.at, kClusterBarrier, warp, s.at, c_.cluster_barrier});
        break;
      case Op::kClusterWait:
        return wait_for(mixed(r.a, r.b, 3), warp, r.pc);
      case Op::kLoad:
        load(s, r, warp);
        break;
      case Op::kStore: {
        s.at += c_.issue;
        const double read = serve(port_[sm], s.at, c_.store_kib * static_cast<double>(r.a) / 1024);
        s.open_group = std::max(s.open_group, read + c_.store_latency);
        serve(l2_, s.at, static_cast<double>(r.a) / l2_rate_);
        end_ = std::max(end_, s.open_group + c_.latency_l2);
        break;
      }
      case Op::kCommitGroup:
        s.at += cost(kIssue, 0, 2);
        s.groups.push_back(s.open_group);
        s.open_group = 0;
        break;
      case Op::kWaitGroup:
        wait_group(s, r);
        break;
      case Op::kMma: {
        s.at += c_.issue;
        const double columns = std::max(c_.mma_least, c_.mma_column * static_cast<double>(r.b));
        const double done = serve(tensor_[sm], s.at, cost(kTensorCore, r.pc, columns));
        unit(0, sm, done - columns, done, kTensorCore, r.pc);
        mma_pc_[sm] = r.pc;
        if (r.c == 2) {
          double& peer = tensor_[sm_[s.cta ^ 1]];
          peer = std::max(peer, done);
        }
        break;
      }
      case Op::kTmemCopy:
        s.at += c_.issue;
        serve(tensor_[sm], s.at, c_.tmem_copy);
        break;
      case Op::kTensorCommit: {
        s.at += c_.issue;
        const double at = std::max(tensor_[sm], s.at) + cost(kTensorCore, mma_pc_[sm], commit_);
        for (const Record* each; (each = own_arrival(s, kTensor)) != nullptr; ++s.next) {
          arrive(arrives_at(*each), {at, kTensorCore, warp, s.at, 0, mma_pc_[sm]});
        }
        break;
      }
      case Op::kTmemLoad:
        s.at += c_.issue;
        s.tmem_pipe = std::max(s.tmem_pipe, s.at) + c_.tmem_register * static_cast<double>(r.a);
        s.tmem_done = s.tmem_pipe + c_.tmem_latency;
        break;
      case Op::kTmemWait:
        spend(s, s.tmem_done, kTmem, r.pc);
        break;
      case Op::kTmemStore:
        s.at += c_.issue + c_.tmem_store_register * static_cast<double>(r.a);
        break;
      case Op::kMapPublish:
        spend(s, s.at + c_.map_publish, kTensorMap, r.pc);
        break;
      case Op::kMapAcquire:
        spend(s, s.at + c_.map_acquire, kTensorMap, r.pc);
        break;
      case Op::kTryCancel:
        s.at += c_.issue;
        for (const Record* each; (each = own_arrival(s, kLaunchControl)) != nullptr; ++s.next) {
          arrive(arrives_at(*each), {s.at, kCancel, warp, s.at, c_.try_cancel, r.pc});
        }
        break;
      case Op::kReduce:
        if (r.lane == 0 || r.a != 0) s.at += c_.reduce;
        if (r.a != 0) arrive(arrives_at(r), {s.at, kWord, warp, s.at, c_.word / 2});
        break;
      case Op::kAtomic:
        if (r.lane == 0) spend(s, s.at + c_.atomic, kWord, r.pc);
        arrive(arrives_at(r), {s.at, kWord, warp, s.at});
        break;
      case Op::kWordWait:
        if (r.b == 0) break;
        if (!wait_for(mixed(r.a, r.b, 4), warp, r.pc)) return false;
        spend(s, s.at + c_.word / 2, kWord, r.pc);
        break;
      case Op::kAccesses:
        accesses(s, r);
        break;
      case Op::kShuffle:
        s.at += c_.shuffle;
        break;
      case Op::kFence:
        if (r.a >= 2) spend(s, s.at + c_.fence_gpu, kWord, r.pc);
        break;
      case Op::kAsyncCopy:
        async_copy(s, r);
        break;
      case Op::kAsyncCommit:
        s.copies.push_back(s.open_copies);
        s.open_copies = 0;
        break;
      case Op::kAsyncWait:
        spend(s, done(s.copies, r.a), kCopyLatency, s.copy_pc);
        break;
      case Op::kWarpgroupMma:
        warpgroup_mma(s, r);
        break;
      case Op::kWarpgroupCommit:
        s.products.push_back(s.open_products);
        break;
      case Op::kWarpgroupWait:
        spend(s, done(s.products, r.a), kTensorCore, s.product_pc);
        break;
      case Op::kGridWait:
        spend(s, before_, kGrid, r.pc);
        break;
      case Op::kGridTrigger:
        if (triggered_[s.cta].first == 0) triggered_[s.cta] = {s.at, warp};
        break;
      case Op::kLaunch:
        break;
    }
    return true;
  }

  // Records until another warp's time is earlier, or it sleeps; true: it has ended.
  bool advance(int warp) {
    WarpState& s = w_[warp];
    while (s.next < s.records.size()) {
      if (!ready_.empty() && s.at > ready_.top().first + 1e-9) {
        ready_.push({s.at, warp});
        return false;
      }
      if (!step(warp)) return false;
    }
    return true;
  }

  const Record* r_;
  const Stretched* paths_;
  std::vector<double>& fetched_;  // by SM and path: when
  Costs c_;
  Free free_;
  std::unordered_map<uint64_t, double>& in_l2_;
  uint32_t grid_ = 0, cluster_ = 1, warps_ = 1, resident_ = 0, started_ = 0;
  size_t sms_ = 1, finished_ = 0;
  double commit_ = 0, hbm_rate_ = 1, l2_rate_ = 1, hbm_ = 0, l2_ = 0, end_ = 0;
  std::vector<WarpState> w_;
  std::vector<double> tma_, tensor_, port_, lsu_, quarter_, issue_;
  std::vector<std::pair<double, int>> ended_;      // by CTA: when, by which warp
  std::vector<std::pair<double, int>> triggered_;  // by CTA: when, by which warp
  double before_;                                  // when the grid before ends
  bool log_units_;
  std::vector<Stretch> units_[2];
  std::vector<uint64_t> mma_pc_;  // of the last MMA
  std::vector<size_t> sm_;
  std::vector<int> live_;
  std::vector<uint32_t> left_;
  std::unordered_map<uint64_t, Phase> phases_;
  using Ready = std::pair<double, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace

// Microseconds of all launches, one after another; -1: the replay does not come to its end.
// `bubbles`: the critical path by cause and place, the longest first, at most `room`. `free_cause`
// at the places `free` costs nothing; kCauses: all costs what it does. `spans`: may be null.
extern "C" __attribute__((visibility("default"))) double kb_replay(
    const void* records, uint64_t count, const void* paths, uint64_t path_count, const void* costs,
    Bubble* bubbles, uint64_t room, int free_cause, const uint64_t* free, uint64_t free_count,
    Spans* spans) {
  const auto* r = static_cast<const Record*>(records);
  const Costs& c = *static_cast<const Costs*>(costs);
  std::map<std::pair<int, uint64_t>, double> path;
  std::unordered_map<uint64_t, double> in_l2;  // contents stay from launch to launch
  std::vector<double> fetched(static_cast<size_t>(c.sms) * path_count, -1);
  const bool no_start = free_cause == kStart;
  const double launch = no_start ? 0 : c.launch, end = no_start ? 0 : c.end;
  std::vector<Replay> replays;
  std::vector<double> began;
  std::vector<bool> dependent;
  double ended = 0;
  for (uint64_t first = 0, last; first < count; first = last) {
    for (last = first + 1; last < count && r[last].op != Op::kLaunch; ++last) {
    }
    // A dependent grid starts when the one before lets it, and waits by itself for its end.
    dependent.push_back(r[first].x != 0 && !replays.empty());
    began.push_back(launch + (replays.empty() ? 0 : ended + end));
    if (dependent.back())
      began.back() = launch + began[began.size() - 2] + replays.back().last_trigger().first;
    for (auto& [_, landed] : in_l2) landed = 0;
    for (double& each : fetched) each = std::min(each, 0.0);
    replays.emplace_back(r, static_cast<const Stretched*>(paths), fetched, first, last, c,
                         Free{free_cause, free, free + free_count}, ended - began.back(), in_l2,
                         spans != nullptr);
    const double own = replays.back().run();
    if (own < 0) return -1;
    ended = began.back() + own;
  }
  const double after = no_start ? 0 : end + c.call, cycles = ended + after;
  bool by_trigger = false;
  for (size_t i = replays.size(); i-- > 0 && (room > 0 || spans != nullptr);) {
    const Replay& each = replays[i];
    std::vector<Part> parts;
    if (i + 1 == replays.size()) parts.push_back({ended - began[i], cycles - began[i], kStart, 0});
    const bool waited =
        each.critical_path(by_trigger ? each.last_trigger() : each.last_end(), parts);
    by_trigger = dependent[i] && !waited;
    if (!waited) parts.push_back({i > 0 && !dependent[i] ? -launch - end : -launch, 0, kStart, 0});
    for (const Part& p : parts) path[{p.cause, p.pc}] += p.to - p.from;
    if (spans != nullptr) each.spans(static_cast<uint32_t>(i), began[i], parts, *spans);
  }
  std::vector<Bubble> sorted;
  for (const auto& [key, spent] : path)
    sorted.push_back({key.second, static_cast<uint32_t>(key.first), 0, spent});
  std::sort(sorted.begin(), sorted.end(),
            [](const Bubble& a, const Bubble& b) { return a.cycles > b.cycles; });
  for (uint64_t i = 0; i < room; ++i) bubbles[i] = i < sorted.size() ? sorted[i] : Bubble{};
  return cycles / c.clock_ghz / 1e3;
}
