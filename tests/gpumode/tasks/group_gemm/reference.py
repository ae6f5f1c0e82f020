import torch
from utils import compare


def generate_input(m, n, k, g, seed):
    torch.manual_seed(seed)
    groups, sizes = [], []
    for index in range(g):
        a = torch.randint(-2, 3, (1, m[index], k[index]), device="cuda").permute(1, 2, 0)
        b = torch.randint(-2, 3, (1, n[index], k[index]), device="cuda").permute(1, 2, 0)
        c = torch.randn((1, m[index], n[index]), dtype=torch.float16, device="cuda")
        groups.append((a.half(), b.half(), c.permute(1, 2, 0)))
        sizes.append((m[index], n[index], k[index], 1))
    return groups, sizes


def ref_kernel(data):
    groups, sizes = data
    results = []
    for (a, b, c), (_, _, _, count) in zip(groups, sizes, strict=True):
        for layer in range(count):
            c[:, :, layer] = a[:, :, layer].float() @ b[:, :, layer].float().T
        results.append(c)
    return results


def check_implementation(data, output):
    expected = ref_kernel(data)
    if len(output) != len(expected):
        return False, f"{len(output)} groups, expected {len(expected)}"
    for index, (got, wanted) in enumerate(zip(output, expected, strict=True)):
        good, reason = compare(got, wanted, rtol=1e-3, atol=1e-3)
        if not good:
            return False, f"group {index}: {reason}"
    return True, ""
