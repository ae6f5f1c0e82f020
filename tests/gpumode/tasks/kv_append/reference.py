import torch
from task import Cache
from utils import compare


def generate_input(batch, length, dim, seed):
    gen = torch.Generator()
    gen.manual_seed(seed)
    cache = Cache(batch, length + 4, dim)
    old = torch.randn(batch, length, dim, generator=gen)
    cache.append(old)
    sums = torch.randn(batch, dim, generator=gen)
    return torch.randn(batch, 1, dim, generator=gen), cache, sums


def ref_kernel(data):
    x, cache, sums = data
    cache.append(x)
    sums += cache.filled().mean(dim=1)
    return sums, cache.filled()


def check_implementation(data, output):
    for got, wanted in zip(output, ref_kernel(data), strict=True):
        good, reason = compare(got, wanted, rtol=1e-4, atol=1e-4)
        if not good:
            return False, reason
    return True, ""
