"""Numba: a reduction by a tree, a histogram, tiles of a product, libdevice, a scan."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, float64, int32

import kernelbench.ptx

THREADS, TILE = 128, 8
ARCH = (9, 0)


def sums(x, out, n):
    """Each CTA's sum by a tree in shared memory, then one atomic."""
    parts = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    parts[t] = x[i] if i < n else 0
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            parts[t] += parts[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, parts[0])


def unordered_sums(x, out, n):
    """The same without the barriers of the tree: the checker must see it."""
    parts = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    parts[t] = x[i] if i < n else 0
    step = THREADS // 2
    while step > 0:
        if t < step:
            parts[t] += parts[t + step]
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, parts[0])


def histogram(x, bins, n):
    """Bins in shared memory, added up by atomics."""
    own = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    if t < 16:
        own[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        cuda.atomic.add(own, x[i] % 16, 1)
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(bins, t, own[t])


def product(a, b, c, n):
    """Tiles of two matrices in shared memory."""
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((n + TILE - 1) // TILE):
        k = tile * TILE
        left[y, x] = a[row, k + x] if row < n and k + x < n else 0
        right[y, x] = b[k + y, column] if column < n and k + y < n else 0
        cuda.syncthreads()
        for at in range(TILE):
            total += left[y, at] * right[at, x]
        cuda.syncthreads()
    if row < n and column < n:
        c[row, column] = total


def mathematics(x, y, n):
    """Functions of f64 from libdevice."""
    i = cuda.grid(1)
    if i < n:
        y[i] = math.sin(x[i]) * math.exp(-x[i]) + math.log1p(abs(x[i])) / math.sqrt(x[i] * x[i] + 1)


def scan(x, y, n):
    """An inclusive scan of one CTA, in two buffers by turns."""
    sums = cuda.shared.array((2, THREADS), int32)
    t = cuda.threadIdx.x
    sums[0, t] = x[t] if t < n else 0
    cuda.syncthreads()
    step, now = 1, 0
    while step < THREADS:
        before = sums[now, t - step] if t >= step else 0
        sums[1 - now, t] = sums[now, t] + before
        cuda.syncthreads()
        now = 1 - now
        step *= 2
    if t < n:
        y[t] = sums[now, t]


def launch(
    kernel: Callable[..., None], types: tuple[Any, ...], grid: Any, block: Any, *args: Any
) -> kernelbench.ptx.PtxReport:
    """Compile a kernel and run it: an array becomes what numba makes of one."""
    text, _ = cuda.compile_ptx(kernel, types, cc=ARCH)
    module = kernelbench.ptx.load(f"{kernel.__name__}.ptx", text=text)
    flat: list[Any] = []
    for each in args:
        if not isinstance(each, np.ndarray):
            flat.append(each)
            continue
        # Owner, parent, elements, bytes of one, address, extents, strides in bytes.
        flat += [0, 0, each.size, each.itemsize, each, *each.shape, *each.strides]
    return module.launch(module.kernels[0], grid, block, flat, check=5, seed=1)


def main() -> int:
    """0 if every kernel is right, the right ones are clean, and the wrong one is not."""
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, 1000).astype(np.float32)
    out = np.zeros(1, np.float32)
    bins, c = np.zeros(16, np.int32), np.zeros((20, 20), np.float32)
    a, b = (rng.integers(-4, 5, (20, 20)).astype(np.float32) for _ in range(2))
    values, results = rng.standard_normal(300), np.zeros(300)
    whole, scanned = rng.integers(0, 99, 100).astype(np.int32), np.zeros(100, np.int32)
    rows, table = float32[::1], float32[:, ::1]
    counted = x.astype(np.int32) + 9
    cases = [
        (sums, (rows, rows, int32), 8, THREADS, (x, out, 1000), lambda: out[0] == x.sum()),
        (histogram, (int32[::1], int32[::1], int32), 3, THREADS, (counted, bins, 1000),
         lambda: (bins == np.bincount(counted % 16, minlength=16)).all()),
        (product, (table, table, table, int32), (3, 3), (TILE, TILE), (a, b, c, 20),
         lambda: (c == a @ b).all()),
        (mathematics, (float64[::1], float64[::1], int32), 3, THREADS, (values, results, 300),
         lambda: np.allclose(
             results, np.sin(values) * np.exp(-values)
             + np.log1p(abs(values)) / np.sqrt(values * values + 1), rtol=1e-14)),
        (scan, (int32[::1], int32[::1], int32), 1, THREADS, (whole, scanned, 100),
         lambda: (scanned == whole.cumsum()).all()),
    ]  # fmt: skip
    failed = 0
    for kernel, types, grid, block, args, right in cases:
        report = launch(kernel, types, grid, block, *args)
        print(f"{kernel.__name__:16} {'right' if right() else 'WRONG'}", *report.lines())
        failed += not right() or not report.clean
    report = launch(unordered_sums, (rows, rows, int32), 8, THREADS, x, out, 1000)
    print(f"{'unordered_sums':16}", *list(report.lines())[:1])
    failed += not any(each.finding.kind == "race" for each in report.errors)
    return failed


if __name__ == "__main__":
    sys.exit(main())
