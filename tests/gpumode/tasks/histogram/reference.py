import torch
from utils import mismatches


def generate_input(size: int, contention: float, seed: int):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    data = torch.randint(0, 256, (size,), device="cuda", dtype=torch.uint8, generator=gen)
    same = torch.rand((size,), device="cuda", generator=gen) < contention / 100
    data[same] = 42
    return data.contiguous()


def ref_kernel(data):
    return torch.bincount(data, minlength=256)


def check_implementation(data, output):
    reasons = mismatches(output, ref_kernel(data))
    if reasons:
        return False, "mismatch found: " + " ".join(reasons)
    return True, ""
