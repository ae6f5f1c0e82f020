"""Liger Kernel: RMS norm, layer norm, group norm, dynamic tanh, forward and backward."""

from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from near import near_with_gradients, parameter
from torch.nn import functional

x, w, b = parameter(6, 200), parameter(200), parameter(200)
wide, w_wide, b_wide = x.double(), w.double(), b.double()
near_with_gradients(
    LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False),
    functional.rms_norm(wide, (200,), w_wide, 1e-6), (x, w),
)  # fmt: skip
near_with_gradients(
    LigerLayerNormFunction.apply(x, w, b, 1e-5),
    functional.layer_norm(wide, (200,), w_wide, b_wide, 1e-5), (x, w, b),
)  # fmt: skip
alpha = parameter(1)
near_with_gradients(
    LigerDyTFunction.apply(x, alpha, w, b),
    (alpha.double() * wide).tanh() * w_wide + b_wide, (x, alpha, w, b),
)  # fmt: skip
x, w, b = parameter(2, 8, 60), parameter(8), parameter(8)
near_with_gradients(
    LigerGroupNormFunction.apply(x, w, b, 8, 4, 1e-5),
    functional.group_norm(x.double(), 4, w.double(), b.double(), 1e-5), (x, w, b),
)  # fmt: skip
