import torch
from utils import make_match_reference


def generate_input(m, n, k, seed):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(k, m, device="cuda", generator=gen).to(torch.float8_e4m3fn)
    b = torch.randn(k, n, device="cuda", generator=gen).to(torch.float8_e4m3fn)
    a_scale = torch.rand(m, device="cuda", dtype=torch.float32, generator=gen)
    b_scale = torch.rand(n, device="cuda", dtype=torch.float32, generator=gen)
    c = torch.zeros(m, n, dtype=torch.bfloat16, device="cuda")
    return a.T, b.T, a_scale, b_scale, c


def ref_kernel(data):
    a, b, a_scale, b_scale, c = data
    product = (a.to(torch.float32) * a_scale[:, None]) @ (b.to(torch.float32) * b_scale[:, None]).T
    c[...] = product.to(torch.bfloat16)
    return c


check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=1e-3)
