// A rectangle travels to pitched memory and back.
#include <vector>

#include "check.h"

int main() {
  const int width = 24, height = 8;
  const size_t row = width * sizeof(int);
  std::vector<int> there(width * height), back(width * height);
  for (int at = 0; at < width * height; ++at) there[at] = at;
  int* image;
  size_t pitch;
  CHECK(cudaMallocPitch(&image, &pitch, row, height));
  CHECK(cudaMemcpy2DAsync(image, pitch, there.data(), row, row, height, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(back.data(), row, image, pitch, row, height, cudaMemcpyDeviceToHost));
  return there != back;
}
