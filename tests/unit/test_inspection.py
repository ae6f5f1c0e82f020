"""What is said of compiled code: ptxas's figures, CTAs per SM, hashes, constants, disassembly."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base.errors import EnvironmentProblem, PlannedStepError, UsageError
from kernelbench.build import compiler as build
from kernelbench.inspection import by_kind, cubin, resources
from kernelbench.inspection.cubin import Cubin, Function
from kernelbench.kinds import compiled
from kernelbench.machine import toolchain
from kernelbench.machine.arch import ARCHES, arch_named
from kernelbench.machine.occupancy import CtaNeeds, occupancy
from kernelbench.project.model import Allowance
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Step, load_lineages

needs_nvcc = pytest.mark.skipif(build.nvcc() is None, reason="no nvcc: nothing can be compiled")

LOG = """\
launch.cu(7): warning #177-D: variable "x" was declared but never referenced
/usr/a/b/launch.cu(9): warning #20012-D: something else
ptxas warning : Local memory used for function 'spiller', size of stack frame: 1688 bytes
ptxas warning : Registers are spilled to local memory in function 'spiller', 2016 bytes spill \
stores, 2140 bytes spill loads
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4lmemPfi' for 'sm_100a'
ptxas info    : Function properties for _Z4lmemPfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compile time = 14.614 ms
ptxas info    : Compiling entry function 'spiller' for 'sm_100a'
ptxas info    : Function properties for spiller
    1688 bytes stack frame, 2016 bytes spill stores, 2140 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 1688 bytes cumulative stack size
ptxas info    : Function properties for _ZN2kb4soft4failENS0_5FaultEjj
    8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads
"""


def repository_step(name: str) -> Step:
    step = load_lineages(project_at(ROOT)).get(name)
    return replace(step, status="works", entry=step.path / "launch.cu")


class TestLog:
    def test_functions(self) -> None:
        functions, _ = cubin.read_ptxas_log(LOG)
        assert functions == (
            Function("_Z4lmemPfi", True, registers=40, barriers=1, shared_bytes=256),
            Function(
                "spiller", True, registers=32, stack_bytes=1688, spill_store_bytes=2016,
                spill_load_bytes=2140,
            ),
            Function("_ZN2kb4soft4failENS0_5FaultEjj", False, stack_bytes=8, spill_store_bytes=4),
        )  # fmt: skip
        assert [function.spills for function in functions] == [False, True, True]

    def test_warnings_do_not_name_folders(self) -> None:
        _, warnings = cubin.read_ptxas_log(LOG)
        assert len(warnings) == 4
        assert warnings[1] == "launch.cu(9): warning #20012-D: something else"

    def test_nothing(self) -> None:
        assert cubin.read_ptxas_log("") == ((), ())


class TestComplaints:
    @pytest.fixture
    def code(self) -> Cubin:
        functions, warnings = cubin.read_ptxas_log(LOG)
        return Cubin(Path("x"), functions, warnings)

    def allowed(self, *what: str) -> list[Allowance]:
        return [Allowance(each, "because") for each in what]

    def test_everything_is_said_without_an_allowance(self, code: Cubin) -> None:
        assert len(cubin.complaints(code, [])) == 2 + 4

    def test_a_spill_covers_the_warnings_of_that_spill(self, code: Cubin) -> None:
        left = cubin.complaints(code, self.allowed("spill"))
        assert [line.partition(":")[0] for line in left] == ["launch.cu(7)", "launch.cu(9)"]

    def test_a_warning_covers_no_spill(self, code: Cubin) -> None:
        left = cubin.complaints(code, self.allowed("warning"))
        assert len(left) == 4
        assert left[0] == "spiller spills: 2016 bytes stored, 2140 loaded"

    def test_both(self, code: Cubin) -> None:
        assert cubin.complaints(code, self.allowed("spill", "warning")) == []

    def test_local_memory_without_a_spill_is_a_warning(self, code: Cubin) -> None:
        warning = "ptxas warning : Local memory used for function '_Z4lmemPfi', size of …"
        only = replace(code, warnings=(warning,))
        assert cubin.complaints(only, self.allowed("spill")) == [warning]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2kb4step10group_gemmENS0_6GroupsE", "kb::step::group_gemm"),
        ("_ZN2kb4soft7productILi1EEEvjmmjjjb", "kb::soft::product<1>"),
        ("_ZN12_GLOBAL__N_11fEPFvvE", "(anonymous namespace)::f"),
        ("spiller", "spiller"),
        ("_Z", "_Z"),
    ],
)
def test_demangled(symbol: str, name: str) -> None:
    assert cubin.demangled(symbol) == name


def test_launch_bounds() -> None:
    ptx = """
    .visible .entry one(
        .param .align 128 .b8 one_param_0[512]
    )
    .maxntid 192
    .minnctapersm 1
    {
    }
    .entry two(.param .u64 p)
    .reqntid 32, 4, 2
    {
    }
    .entry three()
    {
    .maxntid 7
    }
    """
    assert cubin.launch_bounds(ptx) == {"one": 192, "two": 256}


class TestOccupancy:
    def test_shared_memory_ends_it(self) -> None:
        found = occupancy(CtaNeeds(122, 192, 218112, 256), ARCHES[100].sm)
        assert (found.ctas, found.limits) == (1, ("shared memory",))

    def test_tensor_memory_ends_it(self) -> None:
        found = occupancy(CtaNeeds(64, 192, 40 << 10, 512), ARCHES[100].sm)
        assert (found.ctas, found.limits) == (1, ("tensor memory",))
        found = occupancy(CtaNeeds(64, 192, 100 << 10, 256), ARCHES[100].sm)
        assert (found.ctas, found.limits) == (2, ("shared memory", "tensor memory"))

    def test_a_hopper_sm_has_no_tensor_memory(self) -> None:
        assert occupancy(CtaNeeds(32, 32, 0, 512), ARCHES[90].sm).ctas == 32

    def test_the_most_shared_memory_of_a_cta(self) -> None:
        for sm in (arch.sm for arch in ARCHES.values()):
            most = sm.shared_bytes - sm.shared_reserved
            assert occupancy(CtaNeeds(32, 128, most), sm).ctas == 1
            too_much = occupancy(CtaNeeds(32, 128, most + 1), sm)
            assert (too_much.ctas, too_much.limits) == (0, ("shared memory",))

    def test_it_is_what_the_toolkit_calculates(self, tmp_path: Path) -> None:
        """``cuda_occupancy.h`` is NVIDIA's own arithmetic; it needs neither GPU nor runtime."""
        header, compiler = _occupancy_header(), build.host_compiler()
        if header is None or compiler is None:
            pytest.skip("no cuda_occupancy.h, or no C++ compiler")
        draw = random.Random(7)
        cases = [
            CtaNeeds(
                registers=draw.choice([16, 32, 40, 74, 96, 122, 128, 168, 216, 248, 255, 256]),
                threads=draw.choice([32, 96, 128, 192, 224, 256, 384, 480, 512, 1000, 1024]),
                shared_bytes=draw.choice([0, 1, 1000, 8191, 48 << 10, 75000, 114688, 232448]),
                barriers=draw.choice([0, 1, 2, 7, 16]),
            )
            for _ in range(400)
        ]
        cases += [CtaNeeds(r, t, 0) for r, t in itertools.product(range(1, 257, 5), (64, 320))]
        for arch in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"):
            sm = ARCHES[int(arch.strip("sm_a"))].sm
            fitting = [c for c in cases if c.shared_bytes <= sm.shared_bytes - sm.shared_reserved]
            theirs = _by_toolkit(tmp_path, compiler, header, arch, fitting)
            ours = [occupancy(case, sm).ctas for case in fitting]
            wrong = [c for c, a, b in zip(fitting, ours, theirs, strict=True) if a != b]
            assert wrong == []
            assert len(set(ours)) > 10


def _occupancy_header() -> Path | None:
    nvcc = build.nvcc()
    if nvcc is None:
        return None
    run = subprocess.run(
        [str(nvcc.path), "--dryrun", "-E", "-x", "cu", "/dev/null"], capture_output=True, text=True
    )
    for word in run.stderr.replace('"', " ").split():
        if word.startswith("-I") and (Path(word[2:]) / "cuda_occupancy.h").is_file():
            return Path(word[2:]) / "cuda_occupancy.h"
    return None


def _by_toolkit(
    folder: Path, compiler: build.Compiler, header: Path, arch: str, cases: Sequence[CtaNeeds]
) -> list[int]:
    known = arch_named(arch)
    assert known is not None
    sm, (major, minor) = known.sm, known.capability
    source = folder / "occupancy.cpp"
    source.write_text(f"""
#include <cstring>
#include <cstdio>
#include "{header}"
int main() {{
  cudaOccDeviceProp device;
  device.computeMajor = {major};
  device.computeMinor = {minor};
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = {sm.threads};
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerMultiprocessor = {sm.shared_bytes};
  device.sharedMemPerBlockOptin = {sm.shared_bytes - 1024};
  device.reservedSharedMemPerBlock = 1 << 10;
  device.numSms = 132;
  int registers, threads, shared, barriers;
  while (scanf("%d %d %d %d", &registers, &threads, &shared, &barriers) == 4) {{
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = {sm.shared_bytes - 1024};
    kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared))
      return 1;
    printf("%d\\n", result.activeBlocksPerMultiprocessor);
  }}
}}
""")
    program = folder / "occupancy"
    subprocess.run([str(compiler.path), "-w", str(source), "-o", str(program)], check=True)
    rows = "\n".join(f"{c.registers} {c.threads} {c.shared_bytes} {c.barriers}" for c in cases)
    run = subprocess.run([str(program)], input=rows, capture_output=True, text=True, check=True)
    return [int(line) for line in run.stdout.split()]


KERNEL = """\
__constant__ int table[2] = {{ {table}, 2 }};
extern "C" __global__ void scale(double* p) {{
  p[0] = p[0] * {factor} + table[threadIdx.x & 1];
}}
"""


@needs_nvcc
class TestHashes:
    @pytest.fixture
    def hashes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
        (tmp_path / "kernels" / "common" / "backend" / "sm100a").mkdir(parents=True)
        folder = tmp_path / "kernels" / "x"
        folder.mkdir()
        base = repository_step("v01")
        step = replace(base, name="x", path=folder, entry=folder / "launch.cu")

        def compile_source(text: str, **values: object) -> dict[str, str]:
            (folder / "launch.cu").write_text(text.format(**({"table": 1, "factor": 0.1} | values)))
            return dict(cubin.compile_cubin(step).hashes)

        return compile_source

    def test_comments_lines_and_unused_functions_do_not_count(self, hashes) -> None:
        before = hashes(KERNEL)
        assert set(before) == {"scale", cubin.SHARED_DATA}
        more = "// A comment.\n\n__device__ inline int unused() {{ return 3; }}\n" + KERNEL
        assert hashes(more.replace("p[0] =", "\n  /* here */ p[0] =")) == before

    def test_code_and_literals_count(self, hashes) -> None:
        before = hashes(KERNEL)
        changed = hashes(KERNEL, factor=0.3)
        assert changed["scale"] != before["scale"]
        assert changed[cubin.SHARED_DATA] == before[cubin.SHARED_DATA]
        table = hashes(KERNEL, table=5)
        assert table["scale"] == before["scale"]
        assert table[cubin.SHARED_DATA] != before[cubin.SHARED_DATA]

    def test_a_file_that_is_no_cubin(self, tmp_path: Path) -> None:
        file = tmp_path / "broken"
        file.write_bytes(b"\x7fELF")
        with pytest.raises(EnvironmentProblem, match="not a cubin"):
            cubin._read_sections(file)


class TestSelect:
    def test_planned_and_python_steps_are_left_out(self) -> None:
        lineages = load_lineages(project_at(ROOT))
        v00, v23 = lineages.get("v00"), replace(lineages.get("v23"), status="planned")
        chosen, left_out = by_kind.select_kernels([v00, repository_step("v01"), v23])
        assert [step.name for step in chosen] == ["v01"]
        assert len(left_out) == 2
        with pytest.raises(PlannedStepError, match="v23 is planned"):
            by_kind.select_kernels([v23])
        with pytest.raises(UsageError, match="v00 is a Python step"):
            by_kind.select_kernels([v00, v23])

    def test_flavours(self) -> None:
        blackwell = repository_step("v01")
        hopper = replace(blackwell, arch="sm_90a")
        assert resources.flavours(blackwell, "all") == [False, True]
        assert resources.flavours(blackwell, "sm_100a") == [False]
        assert resources.flavours(blackwell, "sm_90a") == [True]
        assert resources.flavours(hopper, "all") == [False]
        assert resources.flavours(hopper, "sm_100a") == []


SOME_CONSTANTS = {"tile_m": 128, "tile_n": 64, "tile_k": 256, "stages": 6, "cluster": 1}


class TestDescribe:
    @pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")
    def test_with_a_host_compiler_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "nvcc", lambda: None)
        found = resources.describe(repository_step("v01"))
        assert found | SOME_CONSTANTS == found

    @needs_nvcc
    def test_with_nvcc_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none() -> build.Compiler:
            raise EnvironmentProblem("no C++ compiler")

        monkeypatch.setattr(resources, "emulator_compiler", none)
        found = resources.describe(repository_step("v01"))
        assert found | SOME_CONSTANTS == found

    def test_with_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "nvcc", lambda: None)
        monkeypatch.setattr(toolchain, "host_compilers", list)
        step = repository_step("v01")
        found = resources.inspect(step)
        assert found.constants is None
        assert found.builds == ()
        assert len(found.missing) == 1
        assert found.missing[0].startswith("v01: no constants: the emulator needs a C++ compiler")

    @pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")
    def test_the_library_has_no_other_symbol(self) -> None:
        path = resources._describing_library(repository_step("v01"))
        run = subprocess.run(["nm", "-D", str(path)], capture_output=True, text=True, check=False)
        if run.returncode:
            pytest.skip("no nm")
        defined = [line.split()[-1] for line in run.stdout.splitlines() if " T " in line]
        assert defined == ["kb_describe"]
        assert "kb_emu" not in run.stdout


class TestDisassembly:
    @pytest.fixture
    def tools(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The only folder in which disassemblers are looked for."""
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setattr(resources, "_other_folders", lambda: iter([folder]))
        monkeypatch.setattr(resources, "cuda_tools", lambda name: iter(()))
        return folder

    @staticmethod
    def script(path: Path, body: str) -> None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def test_none(self, tools: Path) -> None:
        with pytest.raises(EnvironmentProblem, match="neither nvdisasm nor cuobjdump"):
            resources.disassemble(Path("x"))

    def test_each_gets_its_option(self, tools: Path) -> None:
        self.script(tools / "cuobjdump", 'echo "cuobjdump $@"')
        assert resources.disassemble(Path("x")) == "cuobjdump -sass x\n"
        self.script(tools / "nvdisasm", 'echo "nvdisasm $@"')
        assert resources.disassemble(Path("x")) == "nvdisasm -c x\n"

    def test_one_that_is_too_old(self, tools: Path) -> None:
        self.script(tools / "nvdisasm", 'echo "nvdisasm fatal : unknown arch sm_100a" >&2; exit 1')
        with pytest.raises(EnvironmentProblem, match=r"unknown arch sm_100a.*older than nvcc"):
            resources.disassemble(Path("x"))
        self.script(tools / "nvdisasm", "true")
        with pytest.raises(EnvironmentProblem, match="status 0"):
            resources.disassemble(Path("x"))


@needs_nvcc
def test_inspect_agrees_with_the_step(tmp_path: Path) -> None:
    step = repository_step("v01")
    found = resources.inspect(step, "sm_100a", ptx=True)
    assert found.missing == ()
    assert found.constants is not None
    assert found.constants["tile_m"] == step.config["tile"][0]
    (made,) = found.builds
    (code,) = made.code
    assert made.ptx is not None
    assert cubin.launch_bounds(made.ptx)[code.symbol] >= found.constants["threads"] == code.threads
    assert code.dynamic_shared_bytes == found.constants["shared_bytes"]
    assert 0 < code.registers <= 255
    assert code.code_bytes > 1000
    assert code.ctas_per_sm == 1
    assert made.label == "sm_100a"
    path = compiled.gpu_artefact(step, soft=False, flags=("-cubin", *cubin._PTXAS), what="cubin")
    meta = json.loads((path.parent / "meta.json").read_text())
    assert {"-O3", "-lineinfo", "-std=c++20"} <= set(meta["flags"])
