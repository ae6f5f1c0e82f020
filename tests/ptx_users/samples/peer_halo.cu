// Two GPUs: halves of a field, whose edges go to the other by cudaMemcpyPeerAsync.
#include <utility>
#include <vector>

#include "sample.h"
constexpr int kHalf = 64, kTurns = 3;
// A cell beyond each end; the field is a ring.
__global__ void smooth(const float* from, float* to) {
  const int i = threadIdx.x + 1;
  to[i] = from[i - 1] + from[i] + from[i + 1];
}
int main() {
  need_two_gpus();
  struct {
    cudaStream_t stream;
    cudaEvent_t sent;
    float *now, *next;
  } of[2];
  std::vector<float> field(2 * kHalf), half(kHalf + 2);
  for (int i = 0; i < 2 * kHalf; ++i) field[i] = i % 5;
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaStreamCreateWithFlags(&of[gpu].stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&of[gpu].sent));
    CHECK(cudaMalloc(&of[gpu].now, half.size() * 4)),
        CHECK(cudaMalloc(&of[gpu].next, half.size() * 4));
    for (int i = 0; i < kHalf + 2; ++i)
      half[i] = field[(gpu * kHalf + i + 2 * kHalf - 1) % (2 * kHalf)];
    CHECK(cudaMemcpy(of[gpu].now, half.data(), half.size() * 4, cudaMemcpyDefault));
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int gpu = 0; gpu < 2; ++gpu) {
      CHECK(cudaSetDevice(gpu));
      if (turn > 0) CHECK(cudaStreamWaitEvent(of[gpu].stream, of[1 - gpu].sent, 0));
      smooth<<<1, kHalf, 0, of[gpu].stream>>>(of[gpu].now, of[gpu].next);
    }
    for (int gpu = 0; gpu < 2; ++gpu) {
      auto &mine = of[gpu], &other = of[1 - gpu];
      CHECK(cudaSetDevice(gpu));
      CHECK(cudaMemcpyPeerAsync(other.next, 1 - gpu, mine.next + kHalf, gpu, 4, mine.stream));
      CHECK(
          cudaMemcpyPeerAsync(other.next + kHalf + 1, 1 - gpu, mine.next + 1, gpu, 4, mine.stream));
      CHECK(cudaEventRecord(mine.sent, mine.stream));
    }
    for (auto& each : of) std::swap(each.now, each.next);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<float> last = field;
    for (int i = 0; i < 2 * kHalf; ++i) {
      field[i] = last[(i + 2 * kHalf - 1) % (2 * kHalf)] + last[i] + last[(i + 1) % (2 * kHalf)];
    }
  }
  bool right = true;
  for (int gpu = 0; gpu < 2; ++gpu) CHECK(cudaSetDevice(gpu)), CHECK(cudaDeviceSynchronize());
  for (int gpu = 0; gpu < 2; ++gpu) {
    CHECK(cudaMemcpy(half.data(), of[gpu].now, half.size() * 4, cudaMemcpyDefault));
    for (int i = 0; i < kHalf; ++i) right = right && half[i + 1] == field[gpu * kHalf + i];
  }
  return verdict(right);
}
