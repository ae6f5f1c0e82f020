import torch
from torch import nn


class Cache(nn.Module):
    def __init__(self, batch, length, dim):
        super().__init__()
        self.register_buffer("data", torch.zeros(batch, length, dim))
        self.used = 0

    def append(self, x):
        self.data[:, self.used : self.used + x.shape[1]] = x
        self.used += x.shape[1]
        assert self.used <= self.data.shape[1], "the cache is full"

    def filled(self):
        return self.data[:, : self.used]
