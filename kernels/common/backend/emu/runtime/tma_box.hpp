// The emulator's tensor maps, and boxes of elements as TMA moves them (PTX ISA 9.1, 5.5). Shared by
// tma.cpp and tensormap.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "api_tma.hpp"
#include "core.hpp"

namespace kb::emu {

// PTX: 5.5.8: the tensor map is an opaque object of 128 bytes; tensormap.replace and the copies
// alone read it.
// What the emulator keeps in the 128 opaque bytes. CUTLASS 4.5 clears bit 21 of the second word of
// a small matrix's map on the host, so that nothing is kept there.
struct MapImage {
  uint64_t magic;
  uint64_t changed_by_hosts;
  uint64_t address;
  uint64_t dims[5];     // elements
  uint64_t strides[4];  // bytes, of dimensions 1 …
  uint16_t box[5];      // elements; of im2col: channels, pixels, and the lower corner in W, H, D
  uint8_t element_strides[5];
  uint8_t rank;
  uint8_t element;
  uint8_t interleave;
  uint8_t swizzle;
  uint8_t fill;
  bool im2col;
  int16_t upper[3];  // corner, in W, H, D
};
static_assert(sizeof(MapImage) == sizeof(TensorMap));
inline constexpr uint64_t kMapMagic = 0x70616d2d726f736e;

// PTX: 5.5.1: .tf32 and .tf32.ftz, beside TensorMapElement.
inline constexpr uint32_t kTf32Element = 11;
inline constexpr uint32_t kTf32FtzElement = 12;

// Of a map of whole bytes.
uint32_t element_bytes(const MapImage& map);
// The same box of bytes, for elements of which two are one.
MapImage in_bytes(const MapImage& map);
// The rule of cuTensorMapEncodeTiled or …Im2col that the map breaks; empty if none.
std::string broken_rule(const MapImage& map);

// What a copy of the running thread sees at `map`: checked, of the instruction's rank and mode, and
// as the tensormap proxy knows it.
MapImage map_for_copy(const TensorMap* map, const BoxStart& start, Pc pc, const char* what);
// The rest is of tensormap_proxy.cpp, and only for when checking is on, but for the alignment.
void check_map_alignment(const void* map, Pc pc, const char* what);
// What the tensormap proxy of the CTA gives a copy of the running thread.
TensorMap proxy_view(const TensorMap* map, Pc pc, const char* what);
// Notes that the running thread replaces fields of a map in global memory.
void map_replaced(const TensorMap* map, Pc pc);
// Notes that `copy`, issued by the running thread, reads the map; a load completes on an mbarrier.
void map_read_by(const TensorMap* map, Event copy, bool load, Pc pc);
// Notes that the running thread has waited until its groups but the newest `pending` have read
// their maps.
void map_reads_waited(uint32_t pending);
// Forgets what the previous launch did to maps. Also without checking.
void start_maps(uint64_t launch);

// How 16-byte pieces are permuted: by address bits, as in PTX ISA 9.1, 5.5.7.
struct Swizzle {
  uint32_t shift = 7;
  uint32_t mask = 0;
  uint32_t origin = 0;
  // Exclusive-or of an address; the same for all of a row, which lies in one 128-byte line.
  uint32_t key(uint32_t row) const { return (((row - origin) >> shift) & mask) << 4; }
};

// A box at a place of the tensor. Rows start a swizzle's width apart in shared memory even if they
// are shorter: seen on an H200, as the fill and the clipping below.
struct Box {
  Box(const MapImage& map, const BoxStart& start);
  MapImage map;
  BoxStart start;
  int64_t at[5];
  uint32_t count[5];  // elements moved along each dimension
  uint32_t rows;
  uint32_t row_bytes;
  uint32_t pitch;      // from row to row in shared memory
  uint32_t bytes;      // of the elements: what the barrier counts
  uint32_t footprint;  // in shared memory
  // First and last + 1 byte in global memory of the part that is inside the tensor; equal if none.
  uint64_t first;
  uint64_t end;
  // The part of a row inside the tensor, in bytes.
  uint32_t inside_first;
  uint32_t inside_end;

  // What a store writes of a row, or a reduction combines with, ends on a multiple of 16 bytes,
  // beyond the tensor's extent if need be; loads fill from the extent on.
  uint32_t stored_end() const { return (inside_end + kPiece - 1) / kPiece * kPiece; }

  // The width of the swizzle.
  uint32_t swizzle_bytes() const { return map.swizzle == 0 ? 0 : 16u << map.swizzle; }
  // Checks the rows inside the tensor against the shadow of global memory, and keeps the access.
  void check_global(bool writing, const Actor& actor) const;
  // Shared memory at `offset` ← tensor; elements outside are filled.
  void load(std::byte* shared, uint32_t offset) const;
  // Tensor ← shared memory at `offset`, whose bytes are at `image`, or combined with them; elements
  // behind `stored_end` are skipped.
  void store(const std::byte* image, uint32_t offset, const BulkReduction& reduction = {}) const;
  // Calls each(offset, bytes) for the parts of shared memory that a box at `offset` occupies.
  template <typename Each>
  void each_part(uint32_t offset, const Each& each) const {
    if (pitch == row_bytes) {
      each(offset, bytes);
      return;
    }
    const Swizzle place = swizzle(offset);
    for (uint32_t row = offset; row < offset + footprint; row += pitch) {
      for (uint32_t piece = 0; piece < row_bytes; piece += kPiece) {
        each((row + piece) ^ place.key(row), kPiece);
      }
    }
  }

 private:
  static constexpr uint32_t kPiece = 16;
  // Calls row(address, position, inside) for each row, in shared memory's order.
  template <typename Row>
  void each_row(const Row& row) const;
  // The next row, from the place of one: along the box, through pixels, or in the list.
  void next(uint32_t number, int64_t (&place)[5]) const;
  Swizzle swizzle(uint32_t offset) const;
  void fill(std::byte* bytes, uint32_t count) const;
};

}  // namespace kb::emu
