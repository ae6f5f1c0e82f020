// Host: schedules of the last shapes, so that each is computed once.
#pragma once

#include <array>

#include "group_gemm.cuh"
#include "group_tiles.cuh"
#include "packing.cuh"

namespace kb {

// Which CTA computes what of a shape. `List` is what a launch takes.
template <typename List>
struct Schedule {
  std::vector<packing::Extents> groups;
  uint32_t ctas = 0;
  std::vector<List> lists;     // one launch each
  std::vector<uint32_t> rows;  // of each group that its tiles cover
};

inline std::vector<packing::Extents> extents_of(const GroupGemmCall& call) {
  std::vector<packing::Extents> groups(static_cast<size_t>(call.group_count));
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g] = {static_cast<uint32_t>(call.m[g]), static_cast<uint32_t>(call.n[g]),
                 static_cast<uint32_t>(call.k[g])};
  }
  return groups;
}

// Rows of a group that `tile` reaches, at least `rows`, in multiples of `block`.
inline uint32_t covered_rows(uint32_t rows, const Tile& tile, uint32_t block) {
  return std::max(rows, ceil_div(tile.token + tile.columns(), block) * block);
}

// For a static variable of a step's host path; `Plan` is a Schedule, or more. A plan is valid until
// 15 others were made.
template <typename Plan>
class Schedules {
 public:
  // `make(groups, ctas)` plans a shape that is none of the last ones.
  template <typename Make>
  const Plan& get(const std::vector<packing::Extents>& groups, uint32_t ctas, Make make) {
    for (const Plan& each : kept_) {
      if (each.ctas == ctas && each.groups == groups) return each;
    }
    Plan& made = kept_[next_];
    next_ = (next_ + 1) % kept_.size();
    made = make(groups, ctas);
    made.groups = groups;
    made.ctas = ctas;
    return made;
  }

 private:
  std::array<Plan, 16> kept_;
  size_t next_ = 0;
};

}  // namespace kb
