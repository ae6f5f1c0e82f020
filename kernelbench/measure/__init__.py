"""One step in one process: is it right, how long does it take, what does the device allow?

Correctness, timing, flush, profiler sums, ceilings. It imports ``executors`` and what is below,
and torch.
"""
