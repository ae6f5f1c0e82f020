// Replays the records of launches (timing.hpp of the emulator) in virtual time: a clock for each
// warp, waits and arrivals along barriers (max-plus), and servers that serve whoever comes first:
// by SM the TMA unit, the port to L2, the tensor core, the store queue and the load/store unit;
// by GPU L2 and HBM. Costs are cycles unless their name says otherwise.
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
};
enum By : uint32_t { kThread, kCopy, kTensor, kLaunchControl };
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

// In the order of model.py's COSTS.
struct Costs {
  double clock_ghz, sms, shared_per_sm, hbm_gb_s, l2_gb_s, port_bytes, latency_l2, latency_hbm;
  double issue, arrive, wait, tma_issue, store_latency, store_kib, mma_column, mma_least;
  double mma_latency, tmem_copy, tmem_latency, tmem_register, convert_register, tmem_store_register;
  double shared_load, shared_store, global_load, global_load_more, global_store, parameter;
  double map_publish, map_acquire, try_cancel, cluster_barrier, reduce, word, atomic, shuffle;
  double fence_gpu, cta_start, launch, end;
};

// A phase of a barrier, or a version of a word: when the last arrival it needs has come.
struct Phase {
  int needed = 0;
  double at = 0;
  std::vector<int> waiting;
  bool over = false;
  Cause cause = kIssue;
  int source = -1;
  double source_at = 0;
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
  double at = 0;
  double tmem_pipe = 0, tmem_done = 0, to_convert = 0;
  double open_group = 0;
  std::vector<double> groups;
  std::vector<Stretch> stretches;
};
struct Bubble {
  uint64_t pc;
  uint32_t cause, pad;
  double cycles;
};

uint64_t mixed(uint64_t a, uint64_t b, uint64_t kind) {
  uint64_t h =
      a * 0x9e3779b97f4a7c15ull ^ (b + kind * 0x632be59bd9b4e019ull) * 0xc2b2ae3d27d4eb4full;
  return h ^ h >> 29;
}

class Replay {
 public:
  Replay(const Record* records, size_t first, size_t last, const Costs& costs,
         std::unordered_map<uint64_t, double>& in_l2)
      : r_(records), c_(costs), in_l2_(in_l2) {
    const Record& launch = records[first];
    grid_ = static_cast<uint32_t>(launch.a);
    const auto threads = static_cast<uint32_t>(launch.b & 0xffff);
    cluster_ = std::max<uint32_t>(1, static_cast<uint32_t>(launch.b >> 16));
    warps_ = (threads + 31) / 32;
    sms_ = static_cast<size_t>(c_.sms);
    const int by_shared = static_cast<int>(c_.shared_per_sm / (launch.c + 1024));
    const int per_sm =
        std::max(1, std::min({static_cast<int>(2048 / std::max(1u, threads)), by_shared, 32}));
    resident_ =
        static_cast<uint32_t>(std::min<uint64_t>(grid_, sms_ / cluster_ * cluster_ * per_sm));
    hbm_rate_ = c_.hbm_gb_s / c_.clock_ghz;
    l2_rate_ = c_.l2_gb_s / c_.clock_ghz;
    w_.resize(size_t{grid_} * warps_);
    for (size_t i = 0; i < w_.size(); ++i) w_[i].cta = static_cast<uint32_t>(i / warps_);
    for (auto* server : {&tma_, &tensor_, &port_, &stores_, &lsu_}) server->resize(sms_);
    sm_.resize(grid_);
    live_.assign(grid_, static_cast<int>(warps_));
    ended_.resize(grid_);
    left_.assign(grid_ / cluster_ + 1, cluster_);
    sort_records(first + 1, last);
  }

  // Cycles of the launch; negative: warps wait for what never comes.
  double run() {
    for (; started_ < resident_; ++started_) start(started_, started_ % sms_, 0);
    while (!ready_.empty()) {
      const int warp = ready_.top().second;
      w_[warp].at = ready_.top().first;
      ready_.pop();
      if (advance(warp)) finished(warp);
    }
    return finished_ == w_.size() ? end_ : -1;
  }

  void critical_path(std::map<std::pair<int, uint64_t>, double>& out) const {
    int warp = 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      if (w_[i].at > w_[warp].at) warp = static_cast<int>(i);
    }
    double at = w_[warp].at;
    while (at > 0) {
      const std::vector<Stretch>& all = w_[warp].stretches;
      auto it = std::upper_bound(all.begin(), all.end(), at + 1e-9,
                                 [](double t, const Stretch& s) { return t < s.to; });
      uint64_t pc = 0;
      bool jumped = false;
      while (it != all.begin()) {
        const Stretch& s = *--it;
        out[{kIssue, pc}] += std::max(0.0, at - s.to);
        at = std::min(at, s.to);
        pc = s.pc;
        if (s.source < 0) {
          out[{s.cause, s.pc}] += at - s.from;
          at = s.from;
          continue;
        }
        out[{s.cause, s.pc}] += at - s.source_at;
        jumped = s.source_at < at;
        at = s.source_at;
        warp = s.source;
        break;
      }
      if (!jumped) break;
    }
    out[{kStart, 0}] += std::max(0.0, at);
  }

 private:
  // By warp; and how many arrivals each phase needs. Of arrivals by several lanes of a warp lane
  // 0's stands for all. A collective of lane 0 takes place when the other lanes have come: what
  // they did meanwhile was before it.
  void sort_records(size_t first, size_t last) {
    std::unordered_set<uint64_t> by_lane0;
    const auto arrival = [](const Record& r) {
      return mixed(mixed(r.a, r.b, 9), uint64_t{r.cta} * 64 + r.warp, 10);
    };
    for (size_t i = first; i < last; ++i) {
      if (r_[i].op == Op::kArrive && r_[i].c == kThread && r_[i].lane == 0)
        by_lane0.insert(arrival(r_[i]));
    }
    phases_.reserve((last - first) / 3);
    for (size_t i = first; i < last; ++i) {
      const Record& r = r_[i];
      if (r.cta >= grid_) continue;
      if (r.op == Op::kArrive && r.c == kThread && r.lane != 0 && by_lane0.count(arrival(r)))
        continue;
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

  void start(uint32_t cta, size_t sm, double at) {
    sm_[cta] = sm;
    for (uint32_t i = 0; i < warps_; ++i) {
      const auto warp = static_cast<int>(size_t{cta} * warps_ + i);
      w_[warp].at = at + c_.cta_start;
      ready_.push({w_[warp].at, warp});
    }
  }

  void finished(int warp) {
    const WarpState& s = w_[warp];
    ++finished_;
    end_ = std::max(end_, s.at);
    ended_[s.cta] = std::max(ended_[s.cta], s.at);
    const uint32_t cluster = s.cta / cluster_, first = cluster * cluster_;
    if (--live_[s.cta] > 0 || --left_[cluster] > 0) return;
    const double at = *std::max_element(ended_.begin() + first, ended_.begin() + first + cluster_);
    for (uint32_t k = 0; k < cluster_ && started_ < grid_; ++k, ++started_)
      start(started_, sm_[first + k], at);
  }

  void resume(int warp, const Phase& phase, uint64_t pc) {
    WarpState& s = w_[warp];
    if (phase.at > s.at) {
      s.stretches.push_back(
          {s.at, phase.at + c_.wait, phase.cause, phase.source, phase.source_at, pc});
    }
    s.at = std::max(s.at, phase.at) + c_.wait;
  }

  void arrive(uint64_t id, double at, Cause cause, int source, double source_at) {
    Phase& phase = phases_[id];
    if (at >= phase.at) {
      phase.at = at;
      phase.cause = cause;
      phase.source = source;
      phase.source_at = source_at;
    }
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

  void spend(WarpState& s, double until, Cause cause, uint64_t pc) {
    if (until <= s.at) return;
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
    const double sent = serve(tma_[sm], issued, c_.tma_issue);
    double data = sent + c_.latency_l2, queued = 0;
    bool by_hbm = false;
    if (r.x != 0 || r.a != 0) {
      const uint64_t key = r.a ^ r.b << 48;
      const double l2 = serve(l2_, sent, bytes / l2_rate_);
      const auto known = in_l2_.find(key);
      if (known == in_l2_.end()) {
        const double hbm = serve(hbm_, sent, bytes / hbm_rate_);
        by_hbm = hbm > l2;
        queued = std::max(hbm, l2) - sent;
        in_l2_[key] = data = std::max(hbm, l2) + c_.latency_hbm;
      } else {
        by_hbm = known->second > l2 + c_.latency_l2;
        data = std::max(l2 + c_.latency_l2, known->second);
        queued = data - c_.latency_l2 - sent;
      }
    }
    uint32_t mask = r.c;
    for (const Record* each; (each = own_arrival(s, kCopy)) != nullptr; ++s.next) {
      uint32_t to = s.cta;
      if (cluster_ > 1 && r.c != 1 && mask != 0) {
        to = s.cta - s.cta % cluster_ + std::min<uint32_t>(__builtin_ctz(mask), cluster_ - 1);
        mask &= mask - 1;
      }
      double& port = port_[sm_[to]];
      port = std::max(port, data - bytes / c_.port_bytes) + bytes / c_.port_bytes;
      const double landed = std::max(data, port), at_port = landed - data;
      const double at_tma = sent - issued - c_.tma_issue;
      const Cause cause = at_port > queued && at_port > at_tma && at_port > 50 ? kCopyPort
                          : queued > 50 && queued > at_tma ? (by_hbm ? kCopyHbm : kCopyL2)
                          : at_tma > 50                    ? kCopyTma
                                                           : kCopyLatency;
      arrive(arrives_at(*each), landed, cause, warp, issued);
    }
  }

  void wait_group(WarpState& s, const Record& r) {
    s.at += c_.issue;
    double until = 0;
    for (size_t i = 0; i + r.a < s.groups.size(); ++i) {
      until = std::max(until, s.groups[i] + (r.b != 0 ? 0 : c_.latency_l2));
    }
    spend(s, until, kStoreRead, r.pc);
  }

  void accesses(WarpState& s, const Record& r) {
    const double shared_loads = static_cast<uint32_t>(r.a), shared_stores = r.a >> 32;
    const double loads = static_cast<uint32_t>(r.b), stores = r.b >> 32;
    double until = s.at + r.c * c_.parameter + shared_loads * c_.shared_load;
    if (loads > 0) until += c_.global_load + (loads - 1) * c_.global_load_more;
    const double cost = shared_stores * c_.shared_store + stores * c_.global_store;
    if (cost > 0) until = std::max(until, serve(lsu_[sm_[s.cta]], until, cost));
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
        arrive(arrives_at(r), s.at, kArrival, warp, s.at);
        break;
      case Op::kWait:
        if (r.b != 0) return wait_for(mixed(r.a, r.b - 1, 1), warp, r.pc);
        s.at += c_.wait;
        break;
      case Op::kBarrier:
        s.at += c_.issue;
        if (r.x != 0) phases_[arrives_at(r)].waiting.push_back(warp);
        arrive(arrives_at(r), s.at, kNamedBarrier, warp, s.at);
        return r.x == 0;
      case Op::kClusterArrive:
        s.at += c_.issue;
        arrive(arrives_at(r), s.at + c_.cluster_barrier, kClusterBarrier, warp, s.at);
        break;
      case Op::kClusterWait:
        return wait_for(mixed(r.a, r.b, 3), warp, r.pc);
      case Op::kLoad:
        load(s, r, warp);
        break;
      case Op::kStore: {
        s.at += c_.issue;
        const double read =
            serve(stores_[sm], s.at, c_.store_kib * static_cast<double>(r.a) / 1024);
        s.open_group = std::max(s.open_group, read + c_.store_latency);
        serve(l2_, s.at, static_cast<double>(r.a) / l2_rate_);
        end_ = std::max(end_, s.open_group + c_.latency_l2);
        break;
      }
      case Op::kCommitGroup:
        s.at += 2;
        s.groups.push_back(s.open_group);
        s.open_group = 0;
        break;
      case Op::kWaitGroup:
        wait_group(s, r);
        break;
      case Op::kMma: {
        s.at += c_.issue;
        const double done = serve(tensor_[sm], s.at,
                                  std::max(c_.mma_least, c_.mma_column * static_cast<double>(r.b)));
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
        const double at = std::max(tensor_[sm], s.at) + c_.mma_latency + c_.arrive;
        for (const Record* each; (each = own_arrival(s, kTensor)) != nullptr; ++s.next) {
          arrive(arrives_at(*each), at, kTensorCore, warp, s.at);
        }
        break;
      }
      case Op::kTmemLoad:
        s.at += c_.issue;
        s.tmem_pipe = std::max(s.tmem_pipe, s.at) + c_.tmem_register * static_cast<double>(r.a);
        s.tmem_done = s.tmem_pipe + c_.tmem_latency;
        s.to_convert += static_cast<double>(r.a);
        break;
      case Op::kTmemWait:
        spend(s, std::max(s.at, s.tmem_done) + c_.convert_register * s.to_convert, kTmem, r.pc);
        s.to_convert = 0;
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
          arrive(arrives_at(*each), s.at + c_.try_cancel, kCancel, warp, s.at);
        }
        break;
      case Op::kReduce:
        if (r.lane == 0 || r.a != 0) s.at += c_.reduce;
        if (r.a != 0) arrive(arrives_at(r), s.at + c_.word / 2, kWord, warp, s.at);
        break;
      case Op::kAtomic:
        if (r.lane == 0) s.at += c_.atomic;
        arrive(arrives_at(r), s.at, kWord, warp, s.at);
        break;
      case Op::kWordWait:
        if (r.b == 0) break;
        if (!wait_for(mixed(r.a, r.b, 4), warp, r.pc)) return false;
        s.at += c_.word / 2;
        break;
      case Op::kAccesses:
        accesses(s, r);
        break;
      case Op::kShuffle:
        s.at += c_.shuffle;
        break;
      case Op::kFence:
        if (r.a == 2) spend(s, s.at + c_.fence_gpu, kWord, r.pc);
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
  const Costs& c_;
  std::unordered_map<uint64_t, double>& in_l2_;
  uint32_t grid_ = 0, cluster_ = 1, warps_ = 1, resident_ = 0, started_ = 0;
  size_t sms_ = 1, finished_ = 0;
  double hbm_rate_ = 1, l2_rate_ = 1, hbm_ = 0, l2_ = 0, end_ = 0;
  std::vector<WarpState> w_;
  std::vector<double> tma_, tensor_, port_, stores_, lsu_, ended_;
  std::vector<size_t> sm_;
  std::vector<int> live_;
  std::vector<uint32_t> left_;
  std::unordered_map<uint64_t, Phase> phases_;
  using Ready = std::pair<double, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace

// Microseconds of all launches, one after another; -1: the replay does not come to its end.
// `bubbles`: the critical path by cause and place, the longest first, at most `room`.
extern "C" __attribute__((visibility("default"))) double kb_replay(const void* records,
                                                                   uint64_t count,
                                                                   const void* costs,
                                                                   Bubble* bubbles, uint64_t room) {
  const auto* r = static_cast<const Record*>(records);
  const Costs& c = *static_cast<const Costs*>(costs);
  std::map<std::pair<int, uint64_t>, double> path;
  std::unordered_map<uint64_t, double> in_l2;  // contents stay from launch to launch
  double cycles = 0;
  for (uint64_t first = 0, last; first < count; first = last) {
    for (last = first + 1; last < count && r[last].op != Op::kLaunch; ++last) {
    }
    Replay replay(r, first, last, c, in_l2);
    const double own = replay.run();
    if (own < 0) return -1;
    cycles += own + c.launch + c.end;
    path[{kStart, 0}] += c.launch + c.end;
    replay.critical_path(path);
  }
  std::vector<Bubble> sorted;
  for (const auto& [key, spent] : path)
    sorted.push_back({key.second, static_cast<uint32_t>(key.first), 0, spent});
  std::sort(sorted.begin(), sorted.end(),
            [](const Bubble& a, const Bubble& b) { return a.cycles > b.cycles; });
  for (uint64_t i = 0; i < room; ++i) bubbles[i] = i < sorted.size() ? sorted[i] : Bubble{};
  return cycles / c.clock_ghz / 1e3;
}
