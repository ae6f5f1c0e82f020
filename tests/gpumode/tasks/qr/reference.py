import torch


def generate_input(batch: int, n: int, cond: int, seed: int, case: str = "dense"):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gen = torch.Generator(device=device)
    gen.manual_seed(seed)
    a = torch.randn((batch, n, n), device=device, generator=gen)
    if case == "upper":
        a = torch.triu(a)
    return (a * torch.logspace(0, -cond, n, device=device)).contiguous()


def ref_kernel(data):
    return torch.geqrf(data)


def check_implementation(data, output):
    if not isinstance(output, tuple) or len(output) != 2:
        return False, "output must be a tuple (H, tau)"
    h, tau = output
    q = torch.linalg.householder_product(h, tau)
    residual = (q @ torch.triu(h) - data).abs().max().item()
    eye = torch.eye(data.shape[-1], device=data.device)
    skew = (q.mT @ q - eye).abs().max().item()
    message = f"residual {residual:.3g}, orthogonality {skew:.3g}"
    return residual < 1e-4 and skew < 1e-4, message
