"""What CUDA's headers and nvcc make of mathematics: each function in a kernel of its own."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import kernelbench.ptx

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not here")

_FLOAT = """
sinf cosf tanf asinf acosf atanf sinhf coshf asinhf acoshf atanhf expf exp2f exp10f expm1f
logf log2f log10f log1pf sqrtf rsqrtf cbrtf erff erfcf erfinvf normcdff tgammaf lgammaf
floorf ceilf truncf roundf rintf logbf j0f sinpif __sinf __expf __log2f __saturatef
__frcp_rn __fsqrt_rz
"""
_DOUBLE = """
sin cos tan asin atan sinh tanh exp exp2 expm1 log log10 log1p sqrt rsqrt cbrt erf erfinv
tgamma lgamma floor ceil round rint logb __drcp_rn __dsqrt_rz
"""
_OF_TWO = """
powf fmodf remainderf atan2f hypotf fdimf fmaxf copysignf __powf __fdividef __fadd_rz
__fmul_ru __fdiv_rz
"""
_DOUBLE_OF_TWO = """
pow fmod remainder atan2 hypot fmin __dadd_rz __ddiv_rn
"""
_INTEGER = """
__mulhi __mul24 __hadd __rhadd __vadd2 __vadd4 __vabsdiffu4 __vmaxs2 __vminu4 __vcmpeq4
__vcmpgts2 __vsads4 __vavgu4 __vaddss4 __vseteq4
"""
_HALF = """
hsin hcos hexp hexp2 hexp10 hlog hlog2 hsqrt hrsqrt hrcp hfloor hceil htrunc hrint __habs
"""
_MODES = ("rn", "rz", "ru", "rd")
_CONVERSIONS = (
    "i[t] = __float2int_{}(f[t])", "l[t] = __double2ll_{}(d[t])", "f[t] = __double2float_{}(d[t])",
    "h[t] = __float2half_{}(f[t])", "b[t] = __float2bfloat16_{}(f[t])",
    "h[t] = __ll2half_{}(l[t])", "b[t] = __ull2bfloat16_{}(l[t])", "i[t] = __half2int_{}(h[t])",
)  # fmt: skip


def _source() -> str:
    """A program of kernels, one for each function."""
    statements = [f"f[t] = {each}(f[t + 1])" for each in _FLOAT.split()]
    statements += [f"d[t] = {each}(d[t + 1])" for each in _DOUBLE.split()]
    statements += [f"f[t] = {each}(f[t + 1], f[t + 2])" for each in _OF_TWO.split()]
    statements += [f"d[t] = {each}(d[t + 1], d[t + 2])" for each in _DOUBLE_OF_TWO.split()]
    statements += [f"i[t] = {each}(i[t + 1], i[t + 2])" for each in _INTEGER.split()]
    statements += [f"{a}[t] = {each}({a}[t + 1])" for each in _HALF.split() for a in ("h", "b")]
    pairs = [each.replace("h", "h2", 1) for each in _HALF.split() if not each.startswith("__")]
    statements += [f"h2[t] = {each}(h2[t + 1])" for each in pairs]
    statements += [each.format(mode) for each in _CONVERSIONS for mode in _MODES]
    arguments = (
        "float* f, double* d, int* i, long long* l, __half* h, __half2* h2, __nv_bfloat16* b"
    )
    kernels = [
        f'extern "C" __global__ void k{at}({arguments}) {{ const int t = threadIdx.x; {each}; }}'
        for at, each in enumerate(statements)
    ]
    return "\n".join(["#include <cuda_bf16.h>", "#include <cuda_fp16.h>", *kernels])


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="plain", marks=pytest.mark.long),
        pytest.param(("-use_fast_math",), id="fast"),
        pytest.param(("-G",), id="debug", marks=pytest.mark.long),
    ],
)
def test_mathematics_is_translated(tmp_path, flags):
    source, ptx = tmp_path / "math.cu", tmp_path / "math.ptx"
    source.write_text(_source())
    command = ["nvcc", "-arch=sm_90a", "-std=c++17", *flags, "-ptx", str(source), "-o", str(ptx)]
    subprocess.run(command, check=True, capture_output=True)
    assert len(kernelbench.ptx.load(ptx).kernels) > 180
