// Registered buffers of global memory (regions.cpp), and the shadow of their words
// (global_shadow.cpp).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace kb::emu {

// One access to a word: by which launch and cluster, at which event of the cluster's clocks.
struct Access {
  uint32_t serial;  // of the launch; 0: nobody, or the host
  uint32_t epoch;
  uint32_t cluster : 19;
  uint32_t atomic : 1;
  uint32_t scope : 2;    // of an atomic
  uint32_t returns : 1;  // an atomic that has seen what was there
  uint32_t async : 1;    // by a copy
  uint32_t bytes : 4;    // of the word that were accessed, as a mask
  uint32_t written : 4;  // bytes that hold something, whoever wrote them; of writers only
  uint16_t component : 15;
  uint16_t triggered : 1;  // its CTA had triggered dependent grids
  uint16_t place;          // where in the code (global_shadow.cpp)
  static constexpr uint32_t kManyClusters = (1u << 19) - 1;  // ids from here on are not told apart
  friend bool operator==(const Access&, const Access&) = default;
};
static_assert(sizeof(Access) == 16);

// Of each four bytes of a buffer the last writer, and two others, of different clusters: readers
// since, or atomics that the last writer, an atomic too, is in no order with.
class Words {
 public:
  explicit Words(size_t count) : count(count), writers_(zeros(count)) {}
  Access& writer(size_t word) { return writers_[word]; }
  // Null before the first.
  Access* others(size_t word) const {
    Access* const all = others_at_.load(std::memory_order_acquire);
    return all != nullptr ? all + 2 * word : nullptr;
  }
  Access* make_others(size_t word) {
    if (others_at_.load(std::memory_order_acquire) == nullptr) make_others();
    return others(word);
  }

  const size_t count;
  bool fresh = false;  // of a program: memory of the GPU that holds nothing at first
  // The last launches that wrote any of them, or became one of the others: most buffers are for
  // one of the two.
  std::atomic<uint64_t> written_in = 0;
  std::atomic<uint64_t> others_in = 0;
  // Pages of the buffer are for one OS thread at a time; every sixteenth has the same flag.
  static constexpr size_t kPage = 1024, kFlags = 16;
  struct alignas(64) Busy {
    std::atomic_flag flag = ATOMIC_FLAG_INIT;
  };
  std::array<Busy, kFlags> busy;

 private:
  struct Free {
    void operator()(Access* memory) const { std::free(memory); }
  };
  using Pages = std::unique_ptr<Access[], Free>;
  // Fresh pages of the operating system cost nothing until they are touched.
  static Pages zeros(size_t count);
  void make_others();
  Pages writers_;
  Pages others_;
  std::atomic<Access*> others_at_ = nullptr;
  std::mutex making_;
};

// PTX: 5.1, state space .global: memory that the host allocated. PTX knows no buffers; bounds are
// the emulator's own.
struct Region {
  const std::byte* begin;
  const std::byte* end;
  std::string name;
  bool writable;
  bool allocated;                // by the step, and not a tensor of the call
  bool holds;                    // something, also where no kernel, copy or memset has written
  std::shared_ptr<Words> words;  // null before the first access that is kept
  // As a finding names a byte of it.
  std::string at(size_t offset) const;
};

// The region that holds an address, or null. Regions come and go between launches only.
Region* region_at(const std::byte* byte);
// Those that kernels may write.
void each_writable_region(const std::function<void(std::byte*, uint64_t)>& see);
// Its words, made on first use: most registered buffers are inputs.
Words& words_of(Region& region);
// Contents of device memory from here on that nobody has noted: of launches without the checker.
void forget_contents();

}  // namespace kb::emu
