// Host: parts of tiles, and how they are packed onto CTAs. Plain arithmetic, no GPU.
#pragma once

#include "packing.cuh"
#include "parts.cuh"

namespace kb::splitting {

// Parts of each CTA, in the order in which it runs them.
using Bins = std::vector<std::vector<Part>>;

// What a second part costs, in the units of packing::cost_of: its sums go through memory, its
// reader waits, and both are code that a whole tile does not touch. Measured on an H200, see the
// step's README.
inline constexpr double kPartTokens = 900;
inline constexpr double kSumTokens = 3;  // for each token
inline constexpr uint16_t kLeastPairs = 4;

inline double cost_of(const Part& part) {
  const uint32_t columns = part.tile.columns();
  const uint32_t sums = part.added == kLeavesSums ? 1 : part.added;
  return packing::cost_of(columns, part.pairs * 128) + sums * (kPartTokens + kSumTokens * columns);
}

inline Part whole(const Tile& tile, uint32_t k) {
  return {.tile = tile,
          .first_pair = 0,
          .pairs = static_cast<uint16_t>((k + 127) / 128),
          .slot = 0,
          .added = 0};
}

// Fills one bin after the other (McNaughton 1959) and splits K of the tile that does not fit. False
// if `capacity` does not hold them all.
//
// A bin runs what it got last first: the part whose sums another bin waits for. So a CTA waits only
// for the first part of CTAs below it.
inline bool fill(const std::vector<Part>& tiles, double capacity, Bins& bins) {
  for (auto& bin : bins) bin.clear();
  size_t at = 0;
  double load = 0;
  for (Part rest : tiles) {
    while (load + cost_of(rest) > capacity) {
      Part part = rest;
      part.slot = static_cast<uint16_t>(at);  // a bin has one such part
      part.added = kLeavesSums;
      part.pairs = 0;
      Part one = part;
      one.pairs = 1;
      const double room = (capacity - load - cost_of(part)) / (cost_of(one) - cost_of(part));
      if (room >= kLeastPairs && rest.pairs >= 2 * kLeastPairs) {
        part.pairs = static_cast<uint16_t>(std::min(room, 1.0 * rest.pairs - kLeastPairs));
        if (rest.added == 0) rest.slot = part.slot;
        ++rest.added;
        rest.first_pair = static_cast<uint16_t>(rest.first_pair + part.pairs);
        rest.pairs = static_cast<uint16_t>(rest.pairs - part.pairs);
        bins[at].insert(bins[at].begin(), part);
      } else if (load == 0) {
        return false;
      }
      if (++at == bins.size()) return false;
      load = 0;
    }
    bins[at].insert(bins[at].begin(), rest);
    load += cost_of(rest);
  }
  return true;
}

// The least capacity, to about 0.1 %, with which `fill` packs the tiles, if it is below `limit`.
// Returns it, or `limit`.
inline double split(std::vector<Part> tiles, double limit, Bins& best) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Part& a, const Part& b) { return cost_of(a) > cost_of(b); });
  double low = 0;
  Bins tried(best.size());
  for (const Part& each : tiles) low += cost_of(each) / static_cast<double>(best.size());
  if (low >= limit) return limit;
  double high = limit;
  for (int i = 0; i < 11; ++i) {
    const double middle = (low + high) / 2;
    if (fill(tiles, middle, tried)) {
      high = middle;
      std::swap(best, tried);
    } else {
      low = middle;
    }
  }
  return high;
}

// Whole tiles as packing::pack has them, or a split of K where that is shorter.
inline Bins pack(const std::vector<packing::Extents>& groups, uint32_t ctas) {
  const packing::Bins whole_tiles = packing::pack(groups, ctas);
  Bins bins(ctas);
  for (size_t i = 0; i < bins.size(); ++i) {
    for (const auto& [tile, cost] : whole_tiles[i]) {
      bins[i].push_back(whole(tile, groups[tile.group].k));
    }
  }
  double shortest = packing::makespan(whole_tiles);
  for (uint32_t i = kWidths; i-- > 0;) {
    std::vector<Part> tiles;
    for (const auto& [tile, cost] : packing::make_tiles(groups, kTileWidths[i])) {
      tiles.push_back(whole(tile, groups[tile.group].k));
    }
    shortest = split(tiles, shortest, bins);
  }
  return bins;
}

// The bins as lists of one launch each. A part whose sums are waited for is its bin's first, and so
// in the first list.
inline std::vector<PartList> lists_of(const Bins& bins) {
  size_t longest = 0;
  size_t total = 0;
  for (const auto& bin : bins) {
    longest = std::max(longest, bin.size());
    total += bin.size();
  }
  const size_t share = total <= kMaxParts ? longest : kMaxParts / bins.size();  // of a bin
  std::vector<PartList> lists;
  for (size_t from = 0; from < longest; from += share) {
    PartList list = {};
    uint32_t count = 0;
    for (size_t i = 0; i < bins.size(); ++i) {
      list.first[i] = static_cast<uint16_t>(count);
      for (size_t j = from; j < std::min(from + share, bins[i].size()); ++j) {
        list.parts[count++] = bins[i][j];
      }
      list.first[i + 1] = static_cast<uint16_t>(count);
    }
    lists.push_back(list);
  }
  return lists;
}

}  // namespace kb::splitting
