"""NVFP4 block-scaled group GEMM, with the interface of GPU MODE's ``nvfp4_group_gemm``.

Per group ``C = (A * SFA) @ (B * SFB)^T``: e2m1 values, one e4m3 scale per 16 of them along K,
float32 accumulation, one rounding to float16. The operands' classes are in
:mod:`kernelbench.problems.group_gemm.inputs`, the tolerances in
:mod:`kernelbench.problems.group_gemm.tolerance`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.kinds.protocol import HostPath
from kernelbench.measure.speed_of_light import Published
from kernelbench.problems.group_gemm.shape import GroupGemmShape
from kernelbench.project.model import Step
from kernelbench.project.problem import Inputs, Kernel, OutputVerdict, Work
from kernelbench.project.shapes import ShapeFieldError, check_fields, positive_ints, whole_numbers

if TYPE_CHECKING:
    import torch


#: Blocks of K from which the steps that share a tile's K among CTAs do so if CTAs are idle.
_SHARED_BLOCKS = 20

_MAX_GROUPS = 64


def gemm_situations(shape: GroupGemmShape, step: Step, sms: int) -> dict[str, bool]:
    """Whether each situation is reached; without those that no shape can bring about for the step.

    Tiles, stages and cluster are those of the step's ``[config]``; a step without them has none.
    """
    tile = step.config.get("tile")
    if not isinstance(tile, list) or len(tile) != 3:
        return {}
    cluster = int(step.config.get("cluster", [1])[0])
    stages = int(step.config.get("stages", 1))
    groups = list(zip(shape.m, shape.n, shape.k, strict=True))
    row_tiles = [_over(m, tile[0]) for m, _, _ in groups]
    tiles = [
        rows * _over(n, tile[1] * cluster)
        for rows, (_, n, _) in zip(row_tiles, groups, strict=True)
    ]
    blocks = [_over(k, tile[2]) for _, _, k in groups]
    found = {
        "tiles of less than full height": any(m % tile[0] for m, _, _ in groups),
        "a ring of stages that comes round within a tile": max(blocks) > stages,
        "eight groups of one tile": len(groups) >= 8 and max(tiles) == 1,
        "equal neighbouring groups": any(a == b for a, b in pairwise(groups)),
        "neighbouring groups that differ only in M": any(
            a[0] != b[0] and a[1:] == b[1:] for a, b in pairwise(groups)
        ),
    }
    if stages > 1:
        found["a number of k-blocks that is no multiple of the stages"] = any(
            b % stages for b in blocks
        )
    if "persistent" in str(step.config.get("grid", "")):
        clusters = max(1, sms // cluster)
        found |= {
            "several clusters with several tiles each": 2 <= clusters <= sum(tiles) // 2,
            "more clusters than tiles": clusters > sum(tiles),
        }
        found |= _queue(step, sum(tiles) // min(clusters, max(1, sum(tiles))))
    if step.limits.get("nk") != "fixed":
        found |= {
            "neighbouring groups that differ only in K": any(
                a[:2] == b[:2] and a[2] != b[2] for a, b in pairwise(groups)
            ),
            "a group of several row tiles whose K is not the first group's": any(
                rows > 1 and k != groups[0][2]
                for rows, (_, _, k) in zip(row_tiles, groups, strict=True)
            ),
        }
        found |= _parts_of_k(step, tile[2], shape.k)
    if step.config.get("split_k"):
        found["K of a tile that CTAs share"] = sms > sum(tiles) and max(blocks) >= _SHARED_BLOCKS
    return found


def _queue(step: Step, tiles: int) -> dict[str, bool]:
    """Of a step whose warps take tiles from a queue: its phases shift once as many laps are over
    as warps take part, if one arrives too often or not at all."""
    if (slots := int(step.config.get("tile_slots", 0))) == 0:
        return {}
    warps = int(step.config.get("warps", 1))
    return {"a queue of tiles that comes round once for each warp": tiles > slots * (warps - 1)}


def _parts_of_k(step: Step, tile_k: int, sizes: tuple[int, ...]) -> dict[str, bool]:
    if step.limits.get("k_multiple", 64) != 64 or tile_k <= 64:
        return {}
    return {"K an odd multiple of 64": any(k // 64 % 2 for k in sizes)}


def _over(size: int, part: int) -> int:
    return -(-size // part)


class GroupGemm:
    """The problem, see :class:`kernelbench.project.problem.Problem`.

    ``data`` is ``(abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes)``, lists
    with one entry per group:

    * ``(a, b, c)``: ``a`` float4_e2m1fn_x2 ``[m, k/2, 1]``, strides ``(k/2, 1, m*k/2)``; ``b``
      likewise with n rows; ``c`` float16 ``[m, n, 1]``, strides ``(n, 1, m*n)``, to be written.
      The lower index of K is the low nibble.
    * ``(sfa, sfb)``: float8_e4m3fn ``[m, k/16, 1]`` and ``[n, k/16, 1]``, always in CPU memory, as
      in the competition.
    * the same scales on the device, float8_e4m3fn ``[32, 4, ceil(rows/128), 4, k/64, 1]``, a
      permuted view of the blocked layout
      (:func:`kernelbench.problems.group_gemm.nvfp4.block_scales`). Rows past m or n hold random
      valid codes: a step must not take them for zero.
    * ``(m, n, k, 1)``. A group may have no rows of A: m = 0, and nothing is written for it.
    """

    name = "group_gemm"
    input_classes: tuple[str, ...] = ("gpu-mode", "full", "structured")
    benchmark_shapes: tuple[str, ...] = ("A", "B", "C", "D")
    check_shapes: tuple[str, ...] = (
        "u1", "u7", "u3", "u4", "u9", "t3", "t7", "t10", "t11", "u8", "u10",
    )  # fmt: skip
    repeatable: bool = True
    leaderboards: Mapping[str, tuple[str, str]] = MappingProxyType(
        {"sm_100a": ("nvfp4_group_gemm", "B200")}
    )
    published = Published(
        "GPU MODE NVFP4 group GEMM task, B200 at 1.5 GHz",
        "B200",
        {"A": 18.8, "B": 10.7, "C": 2.4, "D": 1.5},
    )

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> GroupGemmShape:
        """A shape from ``m``, ``n`` and ``k``, each an integer or a list with one entry per group.

        Raises:
            ShapeFieldError: If lengths differ, there are more than 64 groups, k is no multiple of
                64, n is no multiple of 8, or a value is not a positive integer (m may be 0).
        """
        check_fields(fields, required=("m", "n", "k"), optional=())
        values = {"m": whole_numbers("m", fields["m"])}
        values |= {field: positive_ints(field, fields[field]) for field in ("n", "k")}
        groups = max(len(value) for value in values.values())
        if groups > _MAX_GROUPS:
            raise ShapeFieldError("m", f"{groups} groups: expected at most {_MAX_GROUPS}")
        for field, value in values.items():
            if len(value) == 1:
                values[field] = value * groups
            elif len(value) != groups:
                lengths = ", ".join(f"{key} has {len(item)}" for key, item in values.items())
                raise ShapeFieldError(
                    field,
                    f"lists of unequal length ({lengths}): expected one entry per group, or one",
                )
        for field, multiple in (("k", 64), ("n", 8)):
            for extent in values[field]:
                if extent % multiple:
                    raise ShapeFieldError(
                        field, f"{field} must be a multiple of {multiple}, found {extent}"
                    )
        return GroupGemmShape(name, values["m"], values["n"], values["k"])

    def make_inputs(
        self, shape: GroupGemmShape, input_class: str, seed: int, device: str
    ) -> Inputs:
        """Draw operands on ``device``, see :mod:`kernelbench.problems.group_gemm.inputs`.

        Raises:
            UnknownNameError: If the input class is none of ``input_classes``.
        """
        from kernelbench.problems.group_gemm.inputs import draw_operands

        self._known(input_class)
        return draw_operands(shape.groups, input_class, seed, device)

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The C tensors that a step returned, float16 ``[m, n, 1]`` per group; else ValueError."""
        from kernelbench.problems.returned import check_tensors

        return check_tensors(result, inputs.outputs)

    def reference(self, inputs: Inputs, shape: GroupGemmShape, input_class: str) -> Any:
        """Exact float64 results, see :func:`kernelbench.problems.group_gemm.tolerance.multiply`."""
        from kernelbench.problems.group_gemm.tolerance import multiply

        self._known(input_class)
        return multiply(inputs.data, with_sigma=input_class == "full")

    def compare(
        self,
        outputs: Sequence[torch.Tensor],
        reference: Any,
        shape: GroupGemmShape,
        input_class: str,
    ) -> OutputVerdict:
        """Bitwise for ``gpu-mode`` and ``structured``, derived bounds for ``full``.

        See :func:`kernelbench.problems.group_gemm.tolerance.judge_group_gemm`.
        """
        from kernelbench.problems.group_gemm.tolerance import judge_group_gemm

        return judge_group_gemm(outputs, reference)

    def right_outputs(self, reference: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The reference of each group, rounded once to float16."""
        pairs = zip(reference, inputs.outputs, strict=True)
        return [group.rounded.view(output.shape) for group, output in pairs]

    def broken_limit(self, shape: GroupGemmShape, limits: Mapping[str, Any]) -> str:
        """``nk = "fixed"`` (one N and K for all), ``max_groups``, ``least_m``, ``k_multiple``.

        Raises:
            UsageError: For a limit that this problem does not know, so that none is passed over.
        """
        broken = ""
        for limit, value in limits.items():
            if limit == "nk":
                if value == "fixed" and len(set(zip(shape.n, shape.k, strict=True))) > 1:
                    broken = broken or "needs one N and K for all groups (limits.nk = fixed)"
            elif limit == "max_groups":
                if len(shape.m) > value:
                    broken = broken or f"takes at most {value} groups (limits.max_groups)"
            elif limit == "least_m":
                if any(m < value for m in shape.m):
                    broken = broken or f"needs M of at least {value} in each group (limits.least_m)"
            elif limit == "k_multiple":
                if any(k % value for k in shape.k):
                    broken = broken or f"needs K to be a multiple of {value} (limits.k_multiple)"
            else:
                raise UsageError(
                    f"unknown limit {limit!r} in a step of group_gemm",
                    "known: nk, max_groups, least_m, k_multiple",
                )
        return broken

    def work(self, shape: GroupGemmShape, inputs: Inputs | None = None) -> Work:
        """2·m·n·k FLOPs per group; FP4 operands, blocked scales (rows padded to 128) and C."""
        flops = read = written = 0
        for m, n, k in shape.groups:
            flops += 2 * m * n * k
            read += (m + n) * k // 2
            read += (-(-m // 128) + -(-n // 128)) * 128 * k // 16
            written += 2 * m * n
        return Work(float(flops), float(read), float(written), "fp4")

    def prepare(self, step: Step) -> None:
        """The extension that takes tensors apart in C++, for steps that want it."""
        from kernelbench.problems.group_gemm import tuples

        if step.config.get("marshal") in tuples.EXTENDED:
            tuples.tuples_library()

    def situations(self, shape: GroupGemmShape, step: Step, sms: int) -> dict[str, bool]:
        """See :func:`gemm_situations`."""
        return gemm_situations(shape, step, sms)

    def fewer_rows(self, shape: GroupGemmShape) -> GroupGemmShape | None:
        """One row in the group with the most; where there are others behind it, of those."""
        candidates = range(max(1, len(shape.m) - 1))
        largest = max(candidates, key=lambda group: shape.m[group])
        if shape.m[largest] <= 1:
            return None
        m = (*shape.m[:largest], 1, *shape.m[largest + 1 :])
        return dataclasses.replace(shape, name=f"{shape.name}, fewer rows", m=m)

    def less_depth(self, shape: GroupGemmShape) -> GroupGemmShape | None:
        """About half of every K, a multiple of what all of them are."""
        whole = math.gcd(256, *shape.k)
        k = tuple((each // whole + 1) // 2 * whole for each in shape.k)
        if k == shape.k:
            return None
        return dataclasses.replace(shape, name=f"{shape.name}, less depth", k=k)

    def bind(self, entry: LoadedStep, step: Step, device: str) -> Kernel:
        """See :mod:`kernelbench.problems.group_gemm.abi`."""
        from kernelbench.problems.group_gemm.abi import bind_group_gemm

        return bind_group_gemm(entry, step, device)

    def host_path(self, step: Step) -> HostPath:
        """That of ``bind`` where calls are timed."""
        from kernelbench.problems.group_gemm import abi, tuples

        marshal = abi.marshal_of(step)
        extension = tuples.SOURCE if marshal in tuples.EXTENDED else None
        arguments = (marshal, str(abi.most_groups(step)))
        return HostPath(Path(abi.__file__), "bind_marshal", arguments, extension=extension)

    def _known(self, input_class: str) -> None:
        if input_class not in self.input_classes:
            raise UnknownNameError("input class", input_class, self.input_classes)


PROBLEM = GroupGemm()
