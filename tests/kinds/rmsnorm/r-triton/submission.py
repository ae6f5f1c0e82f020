import triton
import triton.language as tl


@triton.jit
def rms_norm(x, w, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    weights = tl.load(w + at, mask=inside)
    tl.store(out + row * columns + at, values * scale * weights, mask=inside)


def custom_kernel(data):
    x, w, out, eps = data
    rows, columns = x.shape
    rms_norm[(rows,)](x, w, out, columns, eps, BLOCK=triton.next_power_of_2(columns), num_warps=8)
    return out
