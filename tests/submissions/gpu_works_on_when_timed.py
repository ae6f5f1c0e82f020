"""Right, and when it is timed the device has work left that no event of the caller's waits for."""

import torch
from gpu_right import custom_kernel as right

calls = 0
streams = []


def custom_kernel(data):
    global calls
    calls += 1
    if calls > 5:
        if not streams:
            streams.append(torch.cuda.Stream())
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(4_000_000)
    return right(data)
