// Thrust: a scan by maximum, and a comparison.
#include <thrust/device_vector.h>
#include <thrust/scan.h>
#include <thrust/transform.h>

#include "sample.h"
int main() {
  thrust::device_vector<float> angles(64), highest(64);
  thrust::device_vector<bool> seen(64);
  for (int i = 0; i < 64; ++i) angles[i] = i * 7 % 64;
  thrust::inclusive_scan(angles.begin(), angles.end(), highest.begin(), thrust::maximum<float>());
  thrust::transform(angles.begin(), angles.end(), highest.begin(), seen.begin(),
                    thrust::equal_to<float>());
  bool right = true;
  float most = -1;
  for (int i = 0; i < 64; ++i) {
    most = std::max(most, static_cast<float>(i * 7 % 64));
    right &= highest[i] == most && seen[i] == (most == i * 7 % 64);
  }
  return verdict(right);
}
