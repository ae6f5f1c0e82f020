"""C = A Bᵀ by TMA and wgmma: one warp loads, a warpgroup multiplies."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack

TILE = (64, 64, 64)
STAGES = 2


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

    smem = utils.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, 2 * STAGES)
    sa = smem.allocate_tensor(cutlass.Float16, layout_a.outer, 1024, layout_a.inner)
    sb = smem.allocate_tensor(cutlass.Float16, layout_b.outer, 1024, layout_b.inner)

    stage_bytes = (TILE[0] + TILE[1]) * TILE[2] * 2
    loads = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
        tx_count=stage_bytes,
    )
    ga = cute.local_tile(a, (TILE[0], TILE[2]), (row, None))
    gb = cute.local_tile(b, (TILE[1], TILE[2]), (column, None))
    gc = cute.local_tile(c, (TILE[0], TILE[1]), (row, column))
    ta_s, ta_g = cpasync.tma_partition(
        atom_a, 0, cute.make_layout(1), cute.group_modes(sa, 0, 2), cute.group_modes(ga, 0, 2)
    )
    tb_s, tb_g = cpasync.tma_partition(
        atom_b, 0, cute.make_layout(1), cute.group_modes(sb, 0, 2), cute.group_modes(gb, 0, 2)
    )
    tiles = cute.size(ga, mode=[2])

    thread_mma = tiled_mma.get_slice(tidx % 128)
    fa = tiled_mma.make_fragment_A(thread_mma.partition_A(sa))
    fb = tiled_mma.make_fragment_B(thread_mma.partition_B(sb))
    tc = thread_mma.partition_C(gc)
    sums = cute.make_rmem_tensor(tc.shape, cutlass.Float32)
    cute.arch.sync_threads()

    if warp == 4:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for tile in cutlass.range(tiles):
            loads.producer_acquire(state)
            full = loads.producer_get_barrier(state)
            cute.copy(atom_a, ta_g[(None, tile)], ta_s[(None, state.index)], tma_bar_ptr=full)
            cute.copy(atom_b, tb_g[(None, tile)], tb_s[(None, state.index)], tma_bar_ptr=full)
            loads.producer_commit(state)
            state.advance()
        loads.producer_tail(state)
    if warp < 4:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
        for _tile in cutlass.range(tiles):
            loads.consumer_wait(state)
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(fa, mode=[2])):
                at = (None, None, k, state.index)
                cute.gemm(tiled_mma, sums, fa[at], fb[at], sums)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            loads.consumer_release(state)
            state.advance()
        out = cute.make_rmem_tensor_like(sums, cutlass.Float16)
        out.store(sums.load().to(cutlass.Float16))
        cute.autovec_copy(out, tc)


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    kind = utils.LayoutEnum.from_tensor(a)
    kind_b = utils.LayoutEnum.from_tensor(b)
    tiled_mma = sm90.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        kind.sm90_mma_major_mode(),
        kind_b.sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, TILE[1]),
    )
    layout_a = sm90.make_smem_layout_a(kind, TILE, a.element_type, STAGES)
    layout_b = sm90.make_smem_layout_b(kind_b, TILE, b.element_type, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, ta = cpasync.make_tiled_tma_atom(
        load, a, cute.slice_(layout_a, (None, None, 0)), (TILE[0], TILE[2])
    )
    atom_b, tb = cpasync.make_tiled_tma_atom(
        load, b, cute.slice_(layout_b, (None, None, 0)), (TILE[1], TILE[2])
    )
    grid = (cute.size(c, mode=[0]) // TILE[0], cute.size(c, mode=[1]) // TILE[1], 1)
    gemm_kernel(tiled_mma, atom_a, ta, atom_b, tb, c, layout_a, layout_b).launch(
        grid=grid, block=(160, 1, 1)
    )


def main():
    torch.manual_seed(0)
    m, n, k = 128, 128, 256
    a = torch.randn(m, k, dtype=torch.float16, device="cuda")
    b = torch.randn(n, k, dtype=torch.float16, device="cuda")
    c = torch.zeros(m, n, dtype=torch.float16, device="cuda")
    given = [from_dlpack(x, assumed_align=16) for x in (a, b, c)]
    gemm(*given)
    torch.cuda.synchronize()
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, atol=5e-2, rtol=1e-2)


main()
