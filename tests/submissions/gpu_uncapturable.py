"""Right, but asks the device for a value in the middle, which no graph can hold."""

from gpu_right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    return outputs if outputs[0].float().abs().max().item() >= 0 else []
