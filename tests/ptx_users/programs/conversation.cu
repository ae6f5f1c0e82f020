// A kernel and the host ask and answer each other, turn by turn, in mapped memory.
#include "check.h"

constexpr int kTurns = 4, kThreads = 64;

struct Mail {
  int asked;
  int answered;
  int question[kThreads];
  int answer[kThreads];
};

__host__ __device__ void await(int* word, int value) {
  while (*static_cast<volatile int*>(word) < value) {
  }
}

__global__ void answer_all(Mail* mail) {
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (threadIdx.x == 0) await(&mail->asked, turn);
    __threadfence_system();
    __syncthreads();
    mail->answer[threadIdx.x] = mail->question[threadIdx.x] + turn;
    __syncthreads();
    if (threadIdx.x > 0) continue;
    __threadfence_system();  // the answer
    *static_cast<volatile int*>(&mail->answered) = turn;
  }
}

void ask(Mail* mail, int turn) {
  for (int i = 0; i < kThreads; ++i) mail->question[i] = turn * i;
  __atomic_store_n(&mail->asked, turn, __ATOMIC_RELEASE);
}

int main() {
  Mail* mail;
  CHECK(cudaHostAlloc(&mail, sizeof *mail, cudaHostAllocMapped));
  mail->asked = mail->answered = 0;
  answer_all<<<1, kThreads>>>(mail);
  bool right = true;
  for (int turn = 1; turn <= kTurns; ++turn) {
    ask(mail, turn);
    await(&mail->answered, turn);  // the host
    for (int i = 0; i < kThreads; ++i) right &= mail->answer[i] == turn * i + turn;
  }
  CHECK(cudaDeviceSynchronize());
  return right ? 0 : 1;
}
