// Collective instructions that only translated PTX has: shfl in all modes, redux, match, ldmatrix,
// stmatrix, movmatrix (PTX ISA 9.1, 9.7.9, 9.7.13, 9.7.14).
#include <algorithm>
#include <cstring>
#include <utility>

#include "api_ptx.hpp"
#include "core.hpp"
#include "timing.hpp"
#include "wait.hpp"

namespace kb::emu {

namespace {

bool holds(uint32_t members, uint32_t lane) {
  return (members >> lane & 1) != 0;
}

struct ShuffleOperands {
  uint32_t value, operand, clamp;
};

// The lane that one reads from, and whether it is in the lane's segment; PTX's own pseudocode.
std::pair<uint32_t, bool> source_lane(ShuffleMode mode, uint32_t lane, const ShuffleOperands& of) {
  const uint32_t operand = of.operand & 31, clamp = of.clamp & 31, mask = of.clamp >> 8 & 31;
  const auto most = static_cast<int32_t>((lane & mask) | (clamp & ~mask & 31));
  const auto least = static_cast<int32_t>(lane & mask);
  int32_t source = 0;
  bool in_range = false;
  switch (mode) {
    case ShuffleMode::kUp:
      source = static_cast<int32_t>(lane) - static_cast<int32_t>(operand);
      in_range = source >= most;
      break;
    case ShuffleMode::kDown:
      source = static_cast<int32_t>(lane + operand);
      in_range = source <= most;
      break;
    case ShuffleMode::kXor:
      source = static_cast<int32_t>(lane ^ operand);
      in_range = source <= most;
      break;
    case ShuffleMode::kIndex:
      source = least | static_cast<int32_t>(operand & ~mask & 31);
      in_range = source <= most;
      break;
  }
  return {in_range ? static_cast<uint32_t>(source) : lane, in_range};
}

uint32_t combined(Reduction reduction, bool is_signed, uint32_t a, uint32_t b) {
  const bool less = is_signed ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  switch (reduction) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return less ? a : b;
    case Reduction::kMax:
      return less ? b : a;
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

// Element (row, column) of matrix m is half of a register of a lane (PTX ISA 9.1, figure of
// ldmatrix).
struct Held {
  uint32_t lane, half;
};
Held holder(uint32_t row, uint32_t column, bool transposed) {
  if (transposed) std::swap(row, column);
  return {4 * row + column / 2, column % 2};
}

}  // namespace

// PTX: shfl.sync.{up,down,bfly,idx}.b32 (9.7.9).
// A source lane outside the segment gives the lane's own value; one that is no member is undefined.
Shuffled shfl_segment(ShuffleMode mode, uint32_t value, uint32_t operand, uint32_t clamp,
                      uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const ShuffleOperands mine{value, operand, clamp};
  const auto address = reinterpret_cast<uint64_t>(&mine);
  const uint64_t got = collective(
      "shfl.sync", members, address, pc,
      [mode](Collective& all) {
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          if (!holds(all.members, lane)) continue;
          const auto& of = *reinterpret_cast<const ShuffleOperands*>(all.value[lane]);
          const auto [source, in_range] = source_lane(mode, lane, of);
          if (!holds(all.members, source)) {
            fail({.kind = Class::kDivergence,
                  .pc = all.pc,
                  .text = "shfl.sync reads lane " + std::to_string(source) +
                          ", which is not among its members"});
          }
          const auto& other = *reinterpret_cast<const ShuffleOperands*>(all.value[source]);
          all.result[lane] = uint64_t{in_range} << 32 | other.value;
        }
      },
      true);
  return {static_cast<uint32_t>(got), got >> 32 != 0};
}

// PTX: redux.sync.{add,min,max,and,or,xor} (9.7.13).
uint32_t redux(Reduction reduction, bool is_signed, uint32_t value, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const auto body = [reduction, is_signed](Collective& all) {
    uint32_t total = 0;
    bool first = true;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      if (!holds(all.members, lane)) continue;
      const auto mine = static_cast<uint32_t>(all.value[lane]);
      total = first ? mine : combined(reduction, is_signed, total, mine);
      first = false;
    }
    for (uint64_t& result : all.result) result = total;
  };
  return static_cast<uint32_t>(collective("redux.sync", members, value, pc, body, true));
}

// PTX: match.any.sync.{b32,b64} (9.7.13): the members with the lane's own value.
uint32_t match_any(uint64_t value, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  return static_cast<uint32_t>(collective(
      "match.any.sync", members, value, pc,
      [](Collective& all) {
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          uint32_t equal = 0;
          for (uint32_t other = 0; other < kWarpSize; ++other) {
            if (holds(all.members, other) && all.value[other] == all.value[lane])
              equal |= 1u << other;
          }
          all.result[lane] = equal;
        }
      },
      true));
}

// PTX: match.all.sync.{b32,b64} (9.7.13): of threads that have not exited, as members.
uint32_t match_all(uint64_t value, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  return static_cast<uint32_t>(collective(
      "match.all.sync", members, value, pc,
      [](Collective& all) {
        bool equal = true;
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          equal &= !holds(all.members, lane) || all.value[lane] == all.value[self().lane];
        }
        for (uint64_t& result : all.result) result = equal ? all.members : 0;
      },
      true));
}

// PTX: vote.sync.{all,any,uni,ballot} (9.7.13), over the members that have not exited.
Votes vote(bool predicate, uint32_t members) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const uint64_t both = collective(
      "vote.sync", members, predicate ? 1 : 0, pc,
      [](Collective& all) {
        uint64_t held = 0;
        for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
          if (holds(all.members, lane)) held |= all.value[lane] << lane;
        }
        for (uint64_t& result : all.result) result = held << 32 | all.members;
      },
      true);
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
}

// PTX: movmatrix.sync.aligned.m8n8.trans.b16 (9.7.14): lane 4r + c / 2 has elements (r, c), (r, c +
// 1), and gets those of the transposed matrix.
uint32_t movmatrix(uint32_t value) {
  const Pc pc = KB_EMU_PC;
  interleave();
  return static_cast<uint32_t>(collective("movmatrix", ~0u, value, pc, [](Collective& all) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      uint32_t got = 0;
      for (uint32_t half = 0; half < 2; ++half) {
        const Held from = holder(lane / 4, 2 * (lane % 4) + half, true);
        got |= static_cast<uint32_t>(all.value[from.lane] >> 16 * from.half & 0xffff) << 16 * half;
      }
      all.result[lane] = got;
    }
  }));
}

// PTX: ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.b16 (9.7.14).
// Lane 8m + r gives the address of row r of matrix m.
void ldmatrix(uint32_t* out, uint32_t count, bool transposed, const void* row) {
  const Pc pc = KB_EMU_PC;
  interleave();
  struct Lane {
    const std::byte* row;
    uint32_t* out;
  } mine{static_cast<const std::byte*>(row), out};
  if (self().lane < 8 * count) {
    const SharedPlace at = shared_place(row, pc, "ldmatrix");
    if (at.offset % 16 != 0) {
      fail({.kind = Class::kAlignment, .pc = pc, .text = "ldmatrix: a row is not on 16 bytes"});
    }
    shared_read(*at.cta, at.offset, 16, generic_actor(pc, "ldmatrix"));
  }
  const auto body = [count, transposed](Collective& all) {
    const auto lane = [&all](uint32_t i) { return reinterpret_cast<Lane*>(all.value[i]); };
    for (uint32_t i = 0; i < 64 * count; ++i) {
      const uint32_t m = i / 64, r = i / 8 % 8, c = i % 8;
      const Held to = holder(r, c, transposed);
      std::memcpy(reinterpret_cast<std::byte*>(lane(to.lane)->out + m) + 2 * to.half,
                  lane(8 * m + r)->row + 2 * c, 2);
    }
  };
  collective("ldmatrix", ~0u, reinterpret_cast<uint64_t>(&mine), pc, body);
}

// PTX: stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.b16 (9.7.14).
void stmatrix(void* row, const uint32_t* in, uint32_t count, bool transposed) {
  const Pc pc = KB_EMU_PC;
  interleave();
  struct Lane {
    std::byte* row;
    const uint32_t* in;
    Thread* thread;
    SharedPlace at;
  } mine{static_cast<std::byte*>(row), in, &self(), {}};
  if (self().lane < 8 * count) {
    mine.at = shared_place(row, pc, "stmatrix");
    if (mine.at.offset % 16 != 0) {
      fail({.kind = Class::kAlignment, .pc = pc, .text = "stmatrix: a row is not on 16 bytes"});
    }
    if (timing) timed_access(row, 16, true, pc);
  }
  const auto body = [count, transposed, pc](Collective& all) {
    const auto lane = [&all](uint32_t i) { return reinterpret_cast<Lane*>(all.value[i]); };
    for (uint32_t i = 0; i < 8 * count; ++i) {
      std::byte made[16];
      for (uint32_t c = 0; c < 8; ++c) {
        const Held from = holder(i % 8, c, transposed);
        const auto* words = reinterpret_cast<const std::byte*>(lane(from.lane)->in + i / 8);
        std::memcpy(made + 2 * c, words + 2 * from.half, 2);
      }
      const Lane& of = *lane(i);
      // Where several warps have the same elements, each stores them.
      Actor actor = generic_actor(*of.thread, pc, "stmatrix");
      actor.same = std::memcmp(of.row, made, sizeof made) == 0;
      shared_write(*of.at.cta, of.at.offset, sizeof made, actor);
      std::memcpy(of.row, made, sizeof made);
    }
  };
  collective("stmatrix", ~0u, reinterpret_cast<uint64_t>(&mine), pc, body);
  // All lanes have stored when any goes on, which PTX says of the instruction and not of memory.
  warp_collective("stmatrix", pc, [] {});
}

}  // namespace kb::emu
