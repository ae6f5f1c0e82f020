"""Right, and uses its inputs as memory, which it puts back."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    for a, _, _ in data[0]:
        bytes_of = a.untyped_storage()
        kept = bytes_of.clone()
        bytes_of.fill_(7)
        bytes_of.copy_(kept)
    return outputs
