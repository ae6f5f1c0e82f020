"""C = A Bᵀ by TMA and tcgen05: one warp does everything asynchronous, all four take the sums."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.blackwell_helpers as sm100
import torch
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import from_dlpack

TILE = (128, 128, 64)
STAGES = 3


@cute.kernel
def gemm_kernel(
    tiled_mma: cute.TiledMma,
    atom_a: cute.CopyAtom,
    a: cute.Tensor,
    atom_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    tidx, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    where = (row, column, None)

    smem = utils.SmemAllocator()
    full_and_empty = smem.allocate_array(cutlass.Int64, 2 * STAGES)
    sums_ready = smem.allocate_array(cutlass.Int64, 2)
    tmem_address = smem.allocate_array(cutlass.Int32, 1)
    sa = smem.allocate_tensor(cutlass.Float16, layout_a.outer, 1024, layout_a.inner)
    sb = smem.allocate_tensor(cutlass.Float16, layout_b.outer, 1024, layout_b.inner)

    tmem = utils.TmemAllocator(
        tmem_address,
        barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=128),
    )
    tmem.allocate(128)

    stage_bytes = (TILE[0] + TILE[1]) * TILE[2] * 2
    producer, consumer = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        tx_count=stage_bytes,
        barrier_storage=full_and_empty,
    ).make_participants()
    sums_producer, sums_consumer = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 128),
        barrier_storage=sums_ready,
    ).make_participants()

    thread_mma = tiled_mma.get_slice(0)
    ga = cute.local_tile(a, TILE, where, proj=(1, None, 1))
    gb = cute.local_tile(b, TILE, where, proj=(None, 1, 1))
    gc = cute.local_tile(c, TILE, where, proj=(1, 1, None))
    pa, pb, pc = thread_mma.partition_A(ga), thread_mma.partition_B(gb), thread_mma.partition_C(gc)
    fa, fb = tiled_mma.make_fragment_A(sa), tiled_mma.make_fragment_B(sb)
    sums = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C(TILE[:2]))
    ta_s, ta_g = cpasync.tma_partition(
        atom_a, 0, cute.make_layout(1), cute.group_modes(sa, 0, 3), cute.group_modes(pa, 0, 3)
    )
    tb_s, tb_g = cpasync.tma_partition(
        atom_b, 0, cute.make_layout(1), cute.group_modes(sb, 0, 3), cute.group_modes(pb, 0, 3)
    )
    tmem.wait_for_alloc()
    sums = cute.make_tensor(tmem.retrieve_ptr(cutlass.Float32), sums.layout)

    tiles = cute.size(ga, mode=[2])
    if warp == 0:
        taken = sums_producer.acquire_and_advance()
        for _tile in cutlass.range(tiles, prefetch_stages=STAGES - 2):
            free = producer.acquire_and_advance()
            cute.copy(
                atom_a, ta_g[(None, free.count)], ta_s[(None, free.index)], tma_bar_ptr=free.barrier
            )
            cute.copy(
                atom_b, tb_g[(None, free.count)], tb_s[(None, free.index)], tma_bar_ptr=free.barrier
            )
            full = consumer.wait_and_advance()
            for k in cutlass.range_constexpr(cute.size(fa, mode=[2])):
                at = (None, None, k, full.index)
                cute.gemm(tiled_mma, sums, fa[at], fb[at], sums)
                tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
            full.release()
        taken.commit()

    tmem.relinquish_alloc_permit()
    ready = sums_consumer.wait_and_advance()
    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x64), cutlass.Float32)
    split = ((cute.size(sums, mode=[0, 0]), cute.size(sums, mode=[0, 1]) // 2),)
    parts, parts_c = cute.zipped_divide(sums, split), cute.zipped_divide(pc, split)
    thread_load = tcgen05.make_tmem_copy(load, parts[None, 0]).get_slice(tidx)
    from_tmem = thread_load.partition_S(parts)
    to_c = thread_load.partition_D(parts_c)
    values = cute.make_rmem_tensor(to_c[None, None, 0].shape, cutlass.Float32)
    rounded = cute.make_rmem_tensor(to_c[None, None, 0].shape, cutlass.Float16)
    for part in cutlass.range(cute.size(from_tmem, mode=[2])):
        cute.copy(thread_load, from_tmem[None, None, part], values)
        cute.arch.fence_view_async_tmem_load()
        rounded.store(values.load().to(cutlass.Float16))
        cute.autovec_copy(rounded, to_c[None, None, part])
    ready.release()
    pipeline.sync(barrier_id=1)
    tmem.free(tmem.retrieve_ptr(cutlass.Float32))


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    op = tcgen05.MmaF16BF16Op(
        cutlass.Float16,
        cutlass.Float32,
        (128, 128, 16),
        tcgen05.CtaGroup.ONE,
        tcgen05.OperandSource.SMEM,
        tcgen05.OperandMajorMode.K,
        tcgen05.OperandMajorMode.K,
    )
    tiled_mma = cute.make_tiled_mma(op)
    layout_a = sm100.make_smem_layout_a(tiled_mma, TILE, a.element_type, STAGES)
    layout_b = sm100.make_smem_layout_b(tiled_mma, TILE, b.element_type, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    one_a, one_b = (cute.select(each, mode=[0, 1, 2]) for each in (layout_a, layout_b))
    atom_a, ta = cute.nvgpu.make_tiled_tma_atom_A(load, a, one_a, TILE, tiled_mma)
    atom_b, tb = cute.nvgpu.make_tiled_tma_atom_B(load, b, one_b, TILE, tiled_mma)
    grid = (cute.size(c, mode=[0]) // TILE[0], cute.size(c, mode=[1]) // TILE[1], 1)
    gemm_kernel(tiled_mma, atom_a, ta, atom_b, tb, c, layout_a, layout_b).launch(
        grid=grid, block=(128, 1, 1)
    )


def main():
    torch.manual_seed(0)
    m, n, k = 256, 128, 512
    a = torch.randn(m, k, dtype=torch.float16, device="cuda")
    b = torch.randn(n, k, dtype=torch.float16, device="cuda")
    c = torch.zeros(m, n, dtype=torch.float16, device="cuda")
    gemm(*(from_dlpack(each, assumed_align=32) for each in (a, b, c)))
    torch.cuda.synchronize()
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, atol=5e-2, rtol=1e-2)


main()
