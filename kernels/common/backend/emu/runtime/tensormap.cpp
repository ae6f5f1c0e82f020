// Tensor maps: their rules, encoding on the host, and tensormap.replace (PTX ISA 9.1, 9.7.9).
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api_ptx.hpp"
#include "fiber.hpp"
#include "rt.cuh"
#include "runner.hpp"
#include "tma_box.hpp"

namespace kb::emu {

namespace {

// In the order of tensormap.replace's .elemtype (9.7.9), in bits; 0: not emulated.
constexpr uint32_t kElementBits[] = {8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4};

bool floating(uint32_t element) {
  return element >= static_cast<uint32_t>(TensorMapElement::kF16) && element <= kTf32FtzElement;
}

uint64_t bytes_of(const MapImage& map, uint64_t elements) {
  return elements * kElementBits[map.element] / 8;
}

// PTX: copies take a map in .param, .const or .global (generic addressing); tensormap.replace also
// one in .shared::cta.
bool in_shared_memory(const void* pointer) {
  const Cluster& cluster = *self().cta->cluster;
  const auto* byte = static_cast<const std::byte*>(pointer);
  return byte >= cluster.shared_base &&
         byte < cluster.shared_base + cluster.ctas.size() * kSharedStride;
}

// Maps are opaque to kernels; the emulator reads them as its own.
MapImage decode(const TensorMap& map) {
  MapImage image;
  std::memcpy(&image, &map, sizeof image);
  return image;
}

}  // namespace

uint32_t element_bytes(const MapImage& map) {
  return kElementBits[map.element] / 8;
}

// PTX: 5.5.1: .b4x16 is sixteen elements in eight bytes, in shared memory as in global memory.
MapImage in_bytes(const MapImage& map) {
  if (kElementBits[map.element] >= 8) return map;
  MapImage same = map;
  same.element = static_cast<uint8_t>(TensorMapElement::kU8);
  same.dims[0] /= 2;
  same.box[0] /= 2;
  return same;
}

namespace {

std::string each(const char* name, uint32_t dim, uint64_t value, const std::string& rule) {
  return std::string(name) + "[" + std::to_string(dim) + "] is " + std::to_string(value) +
         ", and must be " + rule;
}

// Driver: cuTensorMapEncodeIm2col: what it asks of a map beyond …Tiled.
std::string broken_rule_of_pixels(const MapImage& map) {
  if (map.rank < 3) {
    return "tensorRank is " + std::to_string(map.rank) + ", and must be 3 … 5";
  }
  if (map.box[0] < 1 || map.box[0] > 256) {
    return "channelsPerPixel is " + std::to_string(map.box[0]) + ", and must be 1 … 256";
  }
  if (map.box[1] < 1 || map.box[1] > 1024) {
    return "pixelsPerColumn is " + std::to_string(map.box[1]) + ", and must be 1 … 1024";
  }
  const int bits = map.rank == 3 ? 15 : map.rank == 4 ? 7 : 4;
  const auto within = [bits](int value) { return value >= -(1 << bits) && value < 1 << bits; };
  for (uint32_t d = 1; d + 1 < map.rank; ++d) {
    const auto lower = static_cast<int16_t>(map.box[d + 1]);
    const int upper = map.upper[d - 1];
    if (!within(lower) || !within(upper)) {
      return "a corner of the pixels' box is " + std::to_string(within(lower) ? upper : lower) +
             ", and must be " + std::to_string(-(1 << bits)) + " … " +
             std::to_string((1 << bits) - 1);
    }
    if (lower > static_cast<int64_t>(map.dims[d]) - 1 + upper) {
      return "the pixels' box is empty along dimension " + std::to_string(d);
    }
  }
  return {};
}

}  // namespace

// What cuTensorMapEncodeTiled refuses, and the hardware does not define; empty if nothing.
// Not modelled: interleaved layouts, sub-byte types that are padded in shared memory, and the
// swizzles with an atom of 32 or 64 bytes.
std::string broken_rule(const MapImage& map) {
  if (map.rank < 1 || map.rank > 5) {
    return "tensorRank is " + std::to_string(map.rank) + ", and must be 1 … 5";
  }
  if (map.element >= std::size(kElementBits) || kElementBits[map.element] == 0) {
    return "the element type is unknown";
  }
  if (map.swizzle > static_cast<uint32_t>(TensorMapSwizzle::k128B)) {
    return "the swizzle mode is unknown";
  }
  if (map.interleave != static_cast<uint32_t>(TensorMapInterleave::kNone)) {
    return "interleaved layouts are not emulated";
  }
  if (map.fill == static_cast<uint32_t>(TensorMapFill::kNan) && !floating(map.element)) {
    return "NaN can fill floating-point elements only";
  }
  if (map.address % 16 != 0) return "globalAddress must be a multiple of 16 bytes";
  for (uint32_t d = 0; d < map.rank; ++d) {
    if (map.dims[d] < 1 || map.dims[d] > uint64_t{1} << 32) {
      return each("globalDim", d, map.dims[d], "1 … 2^32");
    }
    if (!map.im2col && (map.box[d] < 1 || map.box[d] > 256))
      return each("boxDim", d, map.box[d], "1 … 256");
    if (map.element_strides[d] < 1 || map.element_strides[d] > 8) {
      return each("elementStrides", d, map.element_strides[d], "1 … 8");
    }
    if (d == 0) continue;
    const uint64_t stride = map.strides[d - 1];
    if (stride % 16 != 0 || stride >= uint64_t{1} << 40) {
      return each("globalStrides", d - 1, stride, "a multiple of 16 bytes below 2^40");
    }
  }
  if (kElementBits[map.element] < 8 && map.dims[0] % 2 != 0) {
    return each("globalDim", 0, map.dims[0], "even: two elements are a byte");
  }
  if (std::string rule = map.im2col ? broken_rule_of_pixels(map) : ""; !rule.empty()) return rule;
  const auto inner = static_cast<uint32_t>(bytes_of(map, map.box[0]));
  if (inner % 16 != 0) {
    return "boxDim[0] is " + std::to_string(inner) + " bytes, and must be a multiple of 16";
  }
  if (map.swizzle != 0 && inner > (16u << map.swizzle)) {
    return "boxDim[0] is " + std::to_string(inner) + " bytes, and the swizzle takes at most " +
           std::to_string(16u << map.swizzle);
  }
  return {};
}

// Driver: cuTensorMapEncodeTiled. The order of arguments and their limits are its documentation's.
// The emulator's own 128 bytes: kernels treat them as opaque.
TensorMap encode_tensor_map(const rt::TensorMapTile& tile) {
  MapImage image = {};
  image.magic = kMapMagic;
  image.address = reinterpret_cast<uint64_t>(tile.address);
  image.rank = static_cast<uint8_t>(std::min(tile.rank, 255u));
  image.element = static_cast<uint8_t>(tile.element);
  image.swizzle = static_cast<uint8_t>(tile.swizzle);
  for (uint32_t d = 0; d < std::min(tile.rank, 5u); ++d) {
    image.dims[d] = tile.dims[d];
    image.box[d] = static_cast<uint16_t>(std::min(tile.box[d], 65535u));
    image.element_strides[d] = 1;
    if (d > 0) image.strides[d - 1] = tile.strides[d - 1];
  }
  const std::string rule = broken_rule(image);
  if (!rule.empty()) throw rt::Error("cuTensorMapEncodeTiled: " + rule);
  TensorMap map;
  std::memcpy(&map, &image, sizeof map);
  return map;
}

// PTX: 9.7.9: [tensorMap] is a 64-byte aligned generic address outside shared memory; its rank is
// the instruction's .dim, its mode that of the load.
// Assumption: rows are gathered by a map whose boxes have one, as published kernels make it.
// The map that a copy uses, as the tensormap proxy sees it; refuses what the hardware would trap
// on.
MapImage map_for_copy(const TensorMap* map, const BoxStart& start, Pc pc, const char* what) {
  if (in_shared_memory(map)) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) +
                  " takes its tensor map from global, constant or parameter memory, not from "
                  "shared memory"});
  }
  const auto* const at = reinterpret_cast<const std::byte*>(map);
  const std::byte* const own = current_thread == nullptr ? nullptr : current_thread->fiber->stack;
  if (own != nullptr && own <= at && at < own + kStackBytes) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) +
                  " takes its tensor map from global, constant or parameter memory, not from local "
                  "memory: a parameter whose address is taken has to be __grid_constant__"});
  }
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    fail({.kind = Class::kAlignment,
          .pc = pc,
          .text = std::string(what) + " needs a tensor map that is 64-byte aligned"});
  }
  const MapImage image = decode(checking() ? proxy_view(map, pc, what) : *map);
  std::string rule = image.magic == kMapMagic ? broken_rule(image) : "it was never encoded";
  if (rule.empty() && image.rank != start.rank) {
    rule = "it has " + std::to_string(image.rank) + " dimensions, the instruction " +
           std::to_string(start.rank);
  }
  if (rule.empty() && image.im2col != (start.mode == BoxMode::kIm2col)) {
    rule = image.im2col ? "it is for im2col, the instruction is not"
                        : "it is for tiles, the instruction is im2col";
  }
  if (rule.empty() && start.mode == BoxMode::kRows && image.box[1] != 1) {
    rule = "its boxes have " + std::to_string(image.box[1]) + " rows, those of four rows one";
  }
  if (!rule.empty()) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) + " with a tensor map that the hardware refuses: " + rule});
  }
  return image;
}

// PTX: prefetch.tensormap (9.7.9): a hint, through the tensormap proxy.
// The proxy may keep the map from now on: a change after it needs release and acquire.
void prefetch_tensor_map(const TensorMap* map) {
  const Pc pc = KB_EMU_PC;
  const char* what = "prefetch.tensormap";
  interleave();
  if (decode(*map).magic != kMapMagic) {
    fail({.kind = Class::kDescriptor,
          .pc = pc,
          .text = std::string(what) + " of a tensor map that was never encoded"});
  }
  // What is prefetched is what the proxy has.
  if (checking()) proxy_view(map, pc, what);
}

// PTX: tensormap.replace (9.7.9) and tensormap.cp_fenceproxy (9.7.13): 128 bytes.
// For tensormap instructions; copies ask for 64 bytes only.
void check_map_alignment(const void* map, Pc pc, const char* what) {
  if (reinterpret_cast<uintptr_t>(map) % 128 == 0) return;
  fail({.kind = Class::kAlignment,
        .pc = pc,
        .text = std::string(what) + " needs a tensor map that is 128-byte aligned"});
}

namespace {

// PTX: tensormap.replace (9.7.9): .field1 has one value, .field2 is indexed by a dimension, .field3
// takes an immediate; rank is written as its value minus one.
// A map as tensormap.replace finds it.
// Assumption: 128 bytes of zeros are a map in translated PTX, whose fields are all still to be
// replaced: Triton makes its maps in shared memory so.
MapImage decode_for_replace(const TensorMap& map) {
  MapImage image = decode(map);
  const auto* bytes = reinterpret_cast<const std::byte*>(&image);
  const bool blank =
      std::all_of(bytes, bytes + sizeof image, [](std::byte byte) { return byte == std::byte{0}; });
  if (blank && runs_ptx()) image.magic = kMapMagic;
  return image;
}

// Replaces one field; the rule that the value breaks, or empty.
// Assumption: global_dim takes 32 bits, global_stride 64, both zero-extended; ranges are the
// driver's. Combinations that only the whole map can show wrong are found by the copy that uses it.
std::string replace(MapImage& image, MapField field, uint32_t index, uint64_t value) {
  const auto between = [&](uint64_t low, uint64_t high) {
    return value >= low && value <= high
               ? std::string()
               : "the value is " + std::to_string(value) + ", and must be " + std::to_string(low) +
                     " … " + std::to_string(high);
  };
  switch (field) {
    case MapField::kGlobalAddress:
      image.address = value;
      return value % 16 == 0 ? "" : "the address must be a multiple of 16 bytes";
    case MapField::kRank:
      image.rank = static_cast<uint8_t>(value + 1);
      return between(0, 4);
    case MapField::kBoxDim:
      image.box[index] = static_cast<uint16_t>(value);
      return between(1, 256);
    case MapField::kGlobalDim:
      image.dims[index] = value;
      return between(1, 0xffffffffu);
    case MapField::kGlobalStride:
      image.strides[index] = value;
      if (value % 16 != 0) return "the stride must be a multiple of 16 bytes";
      return between(0, (uint64_t{1} << 40) - 1);
    case MapField::kElementStride:
      image.element_strides[index] = static_cast<uint8_t>(value);
      return between(1, 8);
    case MapField::kElement:
      image.element = static_cast<uint8_t>(value);
      return {};
    case MapField::kInterleave:
      image.interleave = static_cast<uint8_t>(value);
      return {};
    case MapField::kSwizzle:
      image.swizzle = static_cast<uint8_t>(value);
      return {};
    case MapField::kFill:
      image.fill = static_cast<uint8_t>(value);
      return {};
  }
  return {};
}

}  // namespace

// PTX: tensormap.replace.tile.{global,shared::cta}.b1024 (9.7.9): weak writes through the generic
// proxy, of one field of an initialized map.
// The map has to be valid before; the value is checked alone, the whole map when it is used.
// The whole map counts as written: PTX treats the object as one 1024-bit value.
void tensormap_replace(TensorMap* map, bool in_global, MapField field, uint32_t index,
                       uint64_t value) {
  const Pc pc = KB_EMU_PC;
  const char* what = "tensormap.replace";
  interleave();
  check_map_alignment(map, pc, what);
  if (in_global) {
    global_access(map, sizeof *map, true, pc, what);
  } else {
    const SharedPlace place = shared_place(map, pc, what);
    shared_write(*place.cta, place.offset, sizeof *map, generic_actor(pc, what));
  }
  MapImage image = decode_for_replace(*map);
  std::string rule = image.magic == kMapMagic ? "" : "the map was never encoded";
  if (rule.empty()) rule = replace(image, field, index, value);
  if (!rule.empty()) {
    fail({.kind = Class::kDescriptor, .pc = pc, .text = std::string(what) + ": " + rule});
  }
  if (checking() && in_global) map_replaced(map, pc);
  std::memcpy(map, &image, sizeof image);
}

}  // namespace kb::emu

// The same encoder for programs that call the driver's (kernelbench/ptx/hosts/cuda_runtime): 0, or
// 1 and the rule that is broken. `box`: the extents; with corners, channels and pixels.
extern "C" __attribute__((visibility("default"))) int kb_emu_encode_map(
    void* map, uint32_t element, uint32_t rank, const void* address, const uint64_t* dims,
    const uint64_t* strides, const uint32_t* box, const int* lower, const int* upper,
    const uint32_t* element_strides, uint32_t interleave, uint32_t swizzle, uint32_t fill,
    char* message, size_t size) {
  using namespace kb::emu;
  MapImage image = {};
  image.magic = kMapMagic;
  image.address = reinterpret_cast<uint64_t>(address);
  image.rank = static_cast<uint8_t>(std::min(rank, 255u));
  image.element = static_cast<uint8_t>(element);
  image.interleave = static_cast<uint8_t>(interleave);
  image.swizzle = static_cast<uint8_t>(swizzle);
  image.fill = static_cast<uint8_t>(fill);
  image.im2col = lower != nullptr;
  for (uint32_t d = 0; d < std::min(rank, 5u); ++d) {
    image.dims[d] = dims[d];
    if (!image.im2col || d < 2) image.box[d] = static_cast<uint16_t>(std::min(box[d], 65535u));
    image.element_strides[d] = static_cast<uint8_t>(std::min(element_strides[d], 255u));
    if (d > 0) image.strides[d - 1] = strides[d - 1];
  }
  for (uint32_t d = 1; image.im2col && d + 1 < std::min(rank, 5u); ++d) {
    image.box[d + 1] = static_cast<uint16_t>(std::clamp(lower[d - 1], -32768, 32767));
    image.upper[d - 1] = static_cast<int16_t>(std::clamp(upper[d - 1], -32768, 32767));
  }
  const std::string rule = broken_rule(image);
  std::memcpy(map, &image, sizeof image);
  std::snprintf(message, size, "%s", rule.c_str());
  return rule.empty() ? 0 : 1;
}
