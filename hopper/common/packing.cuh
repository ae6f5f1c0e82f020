// Host: tiles of a call, and how they are packed onto CTAs. Plain arithmetic, no GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tile_list.cuh"

namespace kb::packing {

// Extents of one group: C is [m, n].
struct Extents {
  uint32_t m, n, k;
  friend bool operator==(const Extents&, const Extents&) = default;
};

struct Costed {
  Tile tile;
  double cost;
};
// Tiles of each CTA.
using Bins = std::vector<std::vector<Costed>>;

// Time of a tile in units of one token and 128 of K. Dequantizing a block of weights takes as long
// as kBlockTokens tokens do; filling the pipeline and storing the tile as kTileTokens blocks.
// From rates by width measured on an H200; the packing changes little with either.
inline constexpr double kBlockTokens = 52;
inline constexpr double kTileTokens = 560;

inline double cost_of(uint32_t columns, uint32_t k) {
  return std::max(columns, 64u) * ((k + 127) / 128) + kBlockTokens * ((k + 127) / 128) +
         kTileTokens;
}

// The narrowest width that holds `tokens`.
inline uint32_t width_for(uint32_t tokens) {
  return *std::lower_bound(std::begin(kTileWidths), std::end(kTileWidths),
                           std::min(tokens, kWidestTile));
}

// Every group's tokens in as few tiles of at most `widest` as will do, of about equal width.
inline std::vector<Costed> make_tiles(const std::vector<Extents>& groups, uint32_t widest) {
  std::vector<Costed> tiles;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const auto [m, n, k] = groups[g];
    if (m == 0) continue;
    const uint32_t parts = (m + widest - 1) / widest;
    const uint32_t columns = width_for((m + parts - 1) / parts);
    for (uint32_t token = 0; token < m; token += columns) {
      const uint32_t width = width_for(std::min(m - token, columns));
      for (uint32_t block = 0; block < (n + 127) / 128; ++block) {
        tiles.push_back({{.token = token,
                          .row_block = static_cast<uint16_t>(block),
                          .group = static_cast<uint8_t>(g),
                          .eights = static_cast<uint8_t>(width / 8)},
                         cost_of(width, k)});
      }
    }
  }
  return tiles;
}

inline double load_of(const std::vector<Costed>& bin) {
  return std::accumulate(bin.begin(), bin.end(), 0.0,
                         [](double sum, const Costed& each) { return sum + each.cost; });
}

inline double makespan(const Bins& bins) {
  double longest = 0;
  for (const auto& bin : bins) longest = std::max(longest, load_of(bin));
  return longest;
}

// First fit in order of falling cost: false if `capacity` does not hold them all.
inline bool first_fit(const std::vector<Costed>& tiles, double capacity, Bins& bins) {
  std::vector<double> load(bins.size(), 0.0);
  for (auto& bin : bins) bin.clear();
  for (const Costed& each : tiles) {
    size_t at = 0;
    while (at < bins.size() && load[at] + each.cost > capacity) ++at;
    if (at == bins.size()) return false;
    load[at] += each.cost;
    bins[at].push_back(each);
  }
  return true;
}

// One tile after the other to the next CTA.
inline Bins deal(const std::vector<Costed>& tiles, uint32_t ctas) {
  Bins bins(ctas);
  for (size_t i = 0; i < tiles.size(); ++i) bins[i % ctas].push_back(tiles[i]);
  return bins;
}

// MULTIFIT (Coffman, Garey, Johnson 1978): the least capacity, to about 0.1 %, into which first fit
// packs the tiles.
inline Bins multifit(std::vector<Costed> tiles, uint32_t ctas) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Costed& a, const Costed& b) { return a.cost > b.cost; });
  double low = std::max(load_of(tiles) / ctas, tiles.front().cost);
  double high = 2 * low;  // first fit always succeeds there
  Bins best(ctas);
  first_fit(tiles, high, best);
  Bins tried(ctas);
  for (int i = 0; i < 10; ++i) {
    const double middle = (low + high) / 2;
    if (first_fit(tiles, middle, tried)) {
      high = middle;
      std::swap(best, tried);
    } else {
      low = middle;
    }
  }
  return best;
}

// The best packing over all widths that tiles can be held to.
inline Bins pack(const std::vector<Extents>& groups, uint32_t ctas) {
  Bins best(ctas);
  double shortest = std::numeric_limits<double>::infinity();
  size_t last = 0;
  for (uint32_t i = kWidths; i-- > 0;) {
    const std::vector<Costed> tiles = make_tiles(groups, kTileWidths[i]);
    if (tiles.size() == last) continue;  // the same tiles as with the width before
    last = tiles.size();
    if (load_of(tiles) / ctas >= shortest) continue;
    Bins bins = multifit(tiles, ctas);
    const double length = makespan(bins);
    if (length < shortest) {
      shortest = length;
      best = std::move(bins);
    }
  }
  return best;
}

// The bins as lists of one launch each: as many as keep every list within its size. Every list has
// its share of each bin, the costliest tiles first.
inline std::vector<TileList> lists_of(const Bins& bins) {
  size_t longest = 0;
  size_t total = 0;
  for (const auto& bin : bins) {
    longest = std::max(longest, bin.size());
    total += bin.size();
  }
  const size_t share = total <= kMaxTiles ? longest : kMaxTiles / bins.size();  // of a bin
  std::vector<TileList> lists;
  for (size_t from = 0; from < longest; from += share) {
    TileList list = {};
    uint32_t count = 0;
    for (size_t i = 0; i < bins.size(); ++i) {
      list.first[i] = static_cast<uint16_t>(count);
      for (size_t j = from; j < std::min(from + share, bins[i].size()); ++j) {
        list.tiles[count++] = bins[i][j].tile;
      }
      list.first[i + 1] = static_cast<uint16_t>(count);
    }
    lists.push_back(list);
  }
  return lists;
}

}  // namespace kb::packing
