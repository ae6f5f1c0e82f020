"""Right, and fills all memory that it shares with its judge, but for its own data, with ones."""

import gc

import torch
from gpu_right import custom_kernel as right

from kernelbench.isolation.shared_data import Mapped


def custom_kernel(data):
    outputs = right(data)
    if torch.cuda.is_current_stream_capturing():
        return outputs
    mine = {t.untyped_storage().data_ptr() for group in data[0] for t in group}
    mine |= {t.untyped_storage().data_ptr() for part in data[1:3] for pair in part for t in pair}
    for found in gc.get_objects():
        if isinstance(found, Mapped):
            for storage in found._storages.values():
                if storage.data_ptr() not in mine:
                    storage.fill_(1)
    return outputs
