// FlashAttention 2, forward: causal; and all keys, split between CTAs whose sums are combined.
#include "flash_attention.hpp"
//
#include "flash_fwd_launch_template.h"

int main() {
  {
    Rows rows(150, 200, true);
    auto params = rows.params<FLASH_NAMESPACE::Flash_fwd_params>();
    FLASH_NAMESPACE::run_mha_fwd_hdim64<cutlass::half_t, true>(params, nullptr);
    if (!rows.right()) return 2;
  }
  Rows rows(5, 700, false);
  auto params = rows.params<FLASH_NAMESPACE::Flash_fwd_params>();
  params.num_splits = 3;
  Array<float> sums(params.num_splits * rows.lse.host.size()), parts(sums.host.size() * kDim);
  params.softmax_lseaccum_ptr = sums.device, params.oaccum_ptr = parts.device;
  FLASH_NAMESPACE::run_mha_fwd_splitkv_dispatch<cutlass::half_t, kDim, false>(params, nullptr);
  return rows.right() ? 0 : 3;
}
