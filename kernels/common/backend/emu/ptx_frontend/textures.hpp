// Textures and surfaces (PTX ISA 9.1, 9.7.10; filters and address modes: CUDA C++ Programming
// Guide, Texture Fetching). An object's handle is the address of its words, which the CUDA runtime
// that stands in writes.
#pragma once

#include <cmath>

#include "memory.hpp"

namespace px {

enum class Wrapping : u32 { kWrap, kClamp, kMirror, kBorder };
enum class Channel : u32 { kSigned, kUnsigned, kFloat };

// As kernelbench/ptx/hosts/cuda_runtime/textures.cpp writes it.
struct ImageWords {
  u64 data, pitch, slice;  // bytes between rows, and between slices or layers
  u32 width, height, depth, layers;
  u32 channels, bits;
  Channel kind;
  Wrapping wrapping[3];
  u32 linear_filter, normalized_coordinates, normalized_read;
  u32 linear_memory;  // no address mode
  f32 border[4];
  u32 levels;  // each has words of its own, one behind the other
  u32 linear_level_filter;
  f32 level_bias, least_level, last_level;
  u32 unused[3];  // each level's words are aligned to their size
};

// Where an instruction fetches.
struct Fetch {
  u32 rank;
  bool layered, cube;
  bool whole;  // coordinates are integers
  u32 layer;
  f64 at[3];
};

namespace detail {

// The texels that a fetch mixes; null: the border.
struct Taps {
  u32 count = 0;
  u32 bytes = 0;
  const Byte* at[8];
  f32 weight[8];
};

inline s64 texel(s64 index, s64 extent, Wrapping wrapping) {
  if (wrapping == Wrapping::kBorder) return index < 0 || index >= extent ? -1 : index;
  if (wrapping == Wrapping::kWrap) return ((index % extent) + extent) % extent;
  if (wrapping == Wrapping::kMirror) {
    const s64 turn = ((index % (2 * extent)) + 2 * extent) % (2 * extent);
    return turn < extent ? turn : 2 * extent - 1 - turn;
  }
  return index < 0 ? 0 : index >= extent ? extent - 1 : index;
}

// The two texels along one dimension, and the weight of the second.
struct Along {
  s64 index[2];
  f32 weight;
};
inline Along along(f64 x, s64 extent, Wrapping wrapping, bool linear, bool normalized) {
  // No number, or one that no index can be, is the coordinate's end.
  if (!(std::fabs(x) < 0x1p40)) x = x > 0 ? 0x1p40 : x < 0 ? -0x1p40 : 0;
  if (normalized) {
    x *= static_cast<f64>(extent);
  } else if (wrapping == Wrapping::kWrap || wrapping == Wrapping::kMirror) {
    wrapping = Wrapping::kClamp;  // the others are of normalized coordinates
  }
  const f64 from = linear ? x - 0.5 : x;
  const f64 first = std::floor(from);
  const auto index = static_cast<s64>(first);
  // Weights have 8 bits of fraction. Assumption: they are rounded to the nearest.
  const f64 weight = linear ? std::floor((from - first) * 256 + 0.5) / 256 : 0;
  return {{texel(index, extent, wrapping), texel(index + 1, extent, wrapping)},
          static_cast<f32>(weight)};
}

// The face of a cube and the place on it (CUDA C++ Programming Guide, Cubemap Textures).
inline void on_face(Fetch& fetch) {
  const f64 x = fetch.at[0], y = fetch.at[1], z = fetch.at[2];
  const f64 ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  u32 face;
  f64 m, s, t;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1, m = ax, s = x >= 0 ? -z : z, t = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3, m = ay, s = x, t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5, m = az, s = z >= 0 ? x : -x, t = -y;
  }
  fetch.layer = (fetch.layered ? 6 * fetch.layer : 0) + face;
  fetch.at[0] = (s / m + 1) / 2;
  fetch.at[1] = (t / m + 1) / 2;
  fetch.rank = 2;
}

inline __attribute__((noinline)) Taps taps(const ImageWords& image, Fetch fetch, bool gather) {
  Taps found;
  found.bytes = image.channels * image.bits / 8;
  const bool linear = gather || image.linear_filter != 0;
  const bool normalized = fetch.cube || (image.normalized_coordinates != 0 && !fetch.whole);
  if (fetch.cube) on_face(fetch);
  const u32 last = image.layers > 0 ? image.layers - 1 : 0;
  const Byte* const base = reinterpret_cast<const Byte*>(image.data) +
                           (fetch.layer < last ? fetch.layer : last) * image.slice;
  const u32 extents[3] = {image.width, image.height > 0 ? image.height : 1,
                          image.depth > 0 ? image.depth : 1};
  Along places[3] = {};
  for (u32 i = 0; i < fetch.rank; ++i) {
    // Assumption: behind linear memory a fetch gives zeros.
    const Wrapping wrapping = image.linear_memory != 0 ? Wrapping::kBorder
                              : fetch.cube             ? Wrapping::kClamp
                                                       : image.wrapping[i];
    places[i] = along(fetch.at[i], extents[i], wrapping, linear, normalized);
  }
  found.count = linear ? 1u << fetch.rank : 1;
  for (u32 tap = 0; tap < found.count; ++tap) {
    f32 weight = 1;
    s64 index[3] = {};
    for (u32 i = 0; i < fetch.rank; ++i) {
      const u32 second = tap >> i & 1;
      index[i] = places[i].index[second];
      weight *= second != 0 ? places[i].weight : 1 - places[i].weight;
    }
    const bool inside = index[0] >= 0 && index[1] >= 0 && index[2] >= 0;
    found.weight[tap] = weight;
    found.at[tap] = inside ? base + index[2] * static_cast<s64>(image.slice) +
                                 index[1] * static_cast<s64>(image.pitch) + index[0] * found.bytes
                           : nullptr;
  }
  return found;
}

inline u32 channel_bits(const ImageWords& image, const Byte* at, u32 channel) {
  const bool extended = image.kind == Channel::kSigned;
  if (image.bits == 8) {
    const u8 value = at[channel];
    return extended ? static_cast<u32>(static_cast<s8>(value)) : value;
  }
  if (image.bits == 16) {
    const u16 value = element<u16>(at, channel);
    return extended ? static_cast<u32>(static_cast<s16>(value)) : value;
  }
  return element<u32>(at, channel);
}
inline f32 channel_value(const ImageWords& image, const Byte* at, u32 channel) {
  const u32 bits = channel_bits(image, at, channel);
  if (image.kind == Channel::kFloat) {
    return image.bits == 16 ? static_cast<f32>(__builtin_bit_cast(_Float16, static_cast<u16>(bits)))
                            : __builtin_bit_cast(f32, bits);
  }
  // [0, 1] or [-1, 1]: the least number of all counts as the one above it.
  if (image.kind == Channel::kUnsigned) {
    return static_cast<f32>(bits) / static_cast<f32>((1u << image.bits) - 1);
  }
  const f32 value =
      static_cast<f32>(static_cast<s32>(bits)) / static_cast<f32>((1u << (image.bits - 1)) - 1);
  return value < -1 ? -1 : value;
}
// Channels that the texels lack are 0.
inline bool in_floats(const ImageWords& image) {
  return image.kind == Channel::kFloat || image.normalized_read != 0;
}
inline u32 tap_bits(const ImageWords& image, const Byte* at, u32 channel) {
  if (channel >= image.channels) return 0;
  if (!in_floats(image)) return at != nullptr ? channel_bits(image, at, channel) : 0;
  return __builtin_bit_cast(
      u32, at != nullptr ? channel_value(image, at, channel) : image.border[channel]);
}

inline __attribute__((noinline)) Elements<u32, 4> mixed(const ImageWords& image, const Taps& taps) {
  Elements<u32, 4> out = {};
  for (u32 channel = 0; channel < image.channels; ++channel) {
    if (taps.count == 1 || !in_floats(image)) {
      out.at[channel] = tap_bits(image, taps.at[0], channel);
      continue;
    }
    f32 sum = 0;
    for (u32 tap = 0; tap < taps.count; ++tap) {
      if (taps.weight[tap] == 0) continue;  // whatever is there, no number included
      sum += taps.weight[tap] * __builtin_bit_cast(f32, tap_bits(image, taps.at[tap], channel));
    }
    out.at[channel] = __builtin_bit_cast(u32, sum);
  }
  return out;
}

}  // namespace detail

PX const ImageWords& image_at(u64 handle) {
  announce_read<sizeof(ImageWords)>(pointer(handle));
  return *reinterpret_cast<const ImageWords*>(handle);
}
PX void announce_taps([[maybe_unused]] const detail::Taps& taps) {
#ifdef KB_PTX_CHECK
  for (u32 i = 0; i < taps.count; ++i) {
    if (taps.at[i] != nullptr) emu::cached_load(taps.at[i], taps.bytes, "a texture fetch");
  }
#endif
}
PX Elements<u32, 4> tex(const ImageWords& image, const Fetch& fetch) {
  const detail::Taps taps = detail::taps(image, fetch, false);
  announce_taps(taps);
  return detail::mixed(image, taps);
}
PX Elements<u32, 4> tex(u64 handle, const Fetch& fetch) {
  return tex(image_at(handle), fetch);
}
// Of a level of detail: the nearest level, or a mix of two.
// Assumption: half a level counts as the next one, and weights have 8 bits of fraction.
inline __attribute__((noinline)) Elements<u32, 4> tex_level(u64 handle, const Fetch& fetch,
                                                            f32 level) {
  const ImageWords* const images = &image_at(handle);
  if (images->levels <= 1) return tex(*images, fetch);
  level = std::fmin(std::fmax(level + images->level_bias, images->least_level), images->last_level);
  level = std::fmin(std::fmax(level, 0), static_cast<f32>(images->levels - 1));
  const bool mixes = images->linear_level_filter != 0 && detail::in_floats(*images);
  const auto first = static_cast<u32>(mixes ? level : level + 0.5f);
  const f32 weight = mixes ? std::floor((level - static_cast<f32>(first)) * 256 + 0.5f) / 256 : 0;
  Elements<u32, 4> out = tex(handle + first * sizeof(ImageWords), fetch);
  if (weight == 0) return out;
  const Elements<u32, 4> next = tex(handle + (first + 1) * sizeof(ImageWords), fetch);
  for (u32 channel = 0; channel < images->channels; ++channel) {
    const auto mixed = (1 - weight) * __builtin_bit_cast(f32, out.at[channel]) +
                       weight * __builtin_bit_cast(f32, next.at[channel]);
    out.at[channel] = __builtin_bit_cast(u32, mixed);
  }
  return out;
}
// By gradients: of images that have one level.
PX Elements<u32, 4> tex_grad(u64 handle, const Fetch& fetch) {
  if (image_at(handle).levels > 1) emu::no_level_by_gradients();
  return tex(handle, fetch);
}
// One channel of the four texels that a linear filter would mix, counterclockwise from the lower
// left one.
PX Elements<u32, 4> tld4(u64 handle, const Fetch& fetch, u32 channel) {
  const ImageWords& image = image_at(handle);
  const detail::Taps taps = detail::taps(image, fetch, true);
  announce_taps(taps);
  Elements<u32, 4> out;
  constexpr u32 kOrder[] = {2, 3, 1, 0};
  for (int i = 0; i < 4; ++i) out.at[i] = detail::tap_bits(image, taps.at[kOrder[i]], channel);
  return out;
}

enum class Outside { kTrap, kClamp, kZero };
// A place on a surface; x counts bytes. Null: outside.
PX Byte* surface_at(u64 handle, const Fetch& fetch, u32 bytes, Outside outside) {
  const ImageWords& image = image_at(handle);
  const s64 limits[] = {static_cast<s64>(image.width) * image.channels * image.bits / 8 - bytes,
                        (image.height > 0 ? image.height : 1) - s64{1},
                        (image.depth > 0 ? image.depth : 1) - s64{1},
                        (image.layers > 0 ? image.layers : 1) - s64{1}};
  s64 at[] = {0, 0, 0, fetch.layered ? static_cast<s64>(static_cast<s32>(fetch.layer)) : 0};
  for (u32 i = 0; i < fetch.rank; ++i) at[i] = static_cast<s64>(fetch.at[i]);
  bool inside = true;
  for (int i = 0; i < 4; ++i) {
    if (at[i] >= 0 && at[i] <= limits[i]) continue;
    inside = false;
    at[i] = at[i] < 0 ? 0 : limits[i];
  }
  if (!inside && outside == Outside::kTrap) emu::trap();
  if (!inside && outside != Outside::kClamp) return nullptr;
  return reinterpret_cast<Byte*>(image.data) + (at[2] + at[3]) * static_cast<s64>(image.slice) +
         at[1] * static_cast<s64>(image.pitch) + at[0];
}
template <typename T, int count>
PX Elements<T, count> suld(u64 handle, const Fetch& fetch, Outside outside) {
  const Byte* const at = surface_at(handle, fetch, count * sizeof(T), outside);
  Elements<T, count> out = {};
  if (at == nullptr) return out;
  announce_cached<count * sizeof(T)>(at, "a surface load");
  for (int i = 0; i < count; ++i) out.at[i] = element<T>(at, i);
  return out;
}
template <typename T, typename... Values>
PX void sust(u64 handle, const Fetch& fetch, Outside outside, Values... values) {
  Byte* const at = surface_at(handle, fetch, sizeof(T) * sizeof...(values), outside);
  if (at != nullptr) store<T>(at, values...);
}

}  // namespace px
