"""The ptx layer's native half: what is declared compiles, and is the PTX that it claims to be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from declarations import ARCHES, COMMON, HEADERS, declarations, expand, pattern

from kernelbench.build import compiler as build
from kernelbench.ptx.hosts.fatbin import ptx_in

HERE = Path(__file__).resolve().parent
STRICT = ("-Werror", "all-warnings", "-Xptxas", "-warn-spills")
SOURCES = {
    "sm90a": ("every_function_common.cu", "every_function_sm90a.cu"),
    "sm100a": ("every_function_common.cu", "every_function_sm100a.cu"),
}
# Backend -> machine code. The soft one runs what is written for sm_100a on sm_90a.
CODE = {"sm90a": "sm_90a", "sm100a": "sm_100a", "soft": "sm_90a"}
# What a kernel or a host path includes besides ptx/.
OTHER_HEADERS = [
    COMMON / f"{name}.cuh" for name in ("kb", "descriptors", "wait", "rt", "entry", "group_gemm")
]
DECLARED = declarations()
# Statements that only carry a value between a register and a predicate.
GLUE = re.compile(r"\.reg\b|setp\.ne\.b32\b|selp\.b32\b")
# Called by the kernels of other functions, so that these are used as a kernel would.
SUPPORT = ("wgmma_fence", "wgmma_commit_group", "wgmma_wait_group", "tcgen05_wait_ld")

needs_nvcc = pytest.mark.skipif(build.nvcc() is None, reason="no nvcc: nothing can be compiled")


@dataclass(frozen=True)
class Compiled:
    """What one run of nvcc said, and the PTX it left."""

    code: int
    log: str
    ptx: str


def nvcc(source: Path, backend: str, *flags: str) -> Path:
    """What nvcc makes of a source, from the compile cache or built now."""
    number = CODE[backend].removeprefix("sm_")
    target = f"arch=compute_{number},code=[sm_{number},compute_{number}]"
    return build.compile_shared(
        f"{source.stem} ({backend})",
        [source],
        ["-std=c++20", "-gencode", target, *STRICT, *flags],
        include_dirs=(COMMON, COMMON / "backend" / backend, HERE),
    )


def compile_one(source: Path, backend: str) -> Compiled:
    """Compile to machine code and PTX, at once."""
    try:
        # All errors: one function has an instance for each width.
        flags = ("-fatbin", "--no-compress", "-Xcudafe", "--error_limit=1000")
        built = nvcc(source, backend, *flags)
        (ptx,) = ptx_in(built.read_bytes())
        return Compiled(0, build.build_log(built), ptx.text)
    except build.CompileFailure as failure:
        return Compiled(1, Path(failure.hint.removeprefix("the log is ")).read_text(), "")


def compile_all(jobs: list[tuple[Path, str]]) -> list[Compiled]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda job: compile_one(*job), jobs))


@pytest.fixture(scope="module")
def entries():
    """For each arch, the PTX of each function's kernels."""
    jobs = [(HERE / name, arch) for arch in ARCHES for name in SOURCES[arch]]
    found: dict[str, dict[str, str]] = {arch: {} for arch in ARCHES}
    for (source, arch), compiled in zip(jobs, compile_all(jobs), strict=True):
        assert compiled.code == 0, f"{source.name} for {arch}:\n{compiled.log}"
        assert "warning" not in compiled.log.lower(), compiled.log
        for match in re.finditer(r"\.entry (\w+)\((.*?)^\}", compiled.ptx, re.S | re.M):
            name = match[1].partition("__")[0]
            found[arch][name] = found[arch].get(name, "") + match[2]
    return found


def inline_statements(body: str) -> list[str]:
    blocks = re.findall(r"// begin inline asm\n(.*?)// end inline asm", body, re.S)
    # A statement's own braces follow an operand list's opening, a block's stand alone.
    statements = [part.strip() for block in blocks for part in block.split(";")]
    statements = [re.sub(r"^\{\s*(?=\.reg)", "", part) for part in statements]
    return [part for part in statements if part not in ("", "}") and not GLUE.match(part)]


def forms_of(name: str, arch: str) -> list[str]:
    return [
        form
        for found in DECLARED
        if found.name == name and arch in found.arches
        for written in found.forms
        for form in expand(written)
    ]


def names_of(arch: str) -> list[str]:
    return sorted({found.name for found in DECLARED if arch in found.arches})


def test_every_declaration_is_understood():
    text = "".join(header.read_text() for header in HEADERS)
    assert len(DECLARED) == len(re.findall(r"^KB_DEVICE ", text, re.M))
    assert all(found.forms for found in DECLARED)
    assert {"wgmma_fence", "tcgen05_alloc"} <= {found.name for found in DECLARED}
    only = {found.name for found in DECLARED if found.arches == ("sm100a",)}
    assert "tcgen05_wait_ld" in only and "mbarrier_init" not in only


@pytest.mark.long
@needs_nvcc
def test_each_header_compiles_alone(tmp_path):
    jobs = []
    for header in [*HEADERS, *OTHER_HEADERS]:
        source = tmp_path / f"{header.stem}_alone.cu"
        source.write_text(f'#include "{header.relative_to(COMMON)}"\n')
        jobs += [(source, arch) for arch in ARCHES]
        # The others are sm_90a's.
        if header.stem in ("clc", "rt", "tcgen05", "tma", "wait", "warp"):
            jobs.append((source, "soft"))
    for (source, backend), compiled in zip(jobs, compile_all(jobs), strict=True):
        assert compiled.code == 0, f"{source.name} for {backend}:\n{compiled.log}"


@needs_nvcc
def test_every_function_compiles_in_software():
    jobs = [(HERE / name, "soft") for name in SOURCES["sm100a"]]
    for (source, _), compiled in zip(jobs, compile_all(jobs), strict=True):
        assert compiled.code == 0, f"{source.name}:\n{compiled.log}"
        assert "warning" not in compiled.log.lower(), compiled.log
        # Of what sm_90a lacks not one instruction is left.
        assert not re.search(r"\b(tcgen05|clusterlaunchcontrol)\.", compiled.ptx)


@needs_nvcc
@pytest.mark.parametrize("backend", CODE)
def test_a_library_of_all_headers_loads_without_a_driver(tmp_path, backend):
    """With the host's half compiled too, and nothing linked that only a GPU's driver has."""
    source = tmp_path / "all.cu"
    headers = [path.relative_to(COMMON) for path in [*HEADERS, *OTHER_HEADERS]]
    source.write_text(
        "".join(f'#include "{header}"\n' for header in headers)
        + "KB_GLOBAL void kernel(uint32_t* word) { *word = kb::ptx::thread_index(); }\n"
        "KB_EXPORT int start(char* message, size_t size) {\n"
        "  return kb::guarded(message, size, [] {\n"
        "    kb::rt::launch(kernel, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 65536},\n"
        "                   nullptr);\n"
        "  });\n"
        "}\n"
    )
    library = nvcc(source, backend, "-Xcompiler", "-Wall,-Wextra")
    assert "warning" not in build.build_log(library)
    # In a process without GPUs: the call fails, in one line.
    call = (
        "import ctypes, sys; m = ctypes.create_string_buffer(200); "
        "print(ctypes.CDLL(sys.argv[1]).start(m, ctypes.c_size_t(200)), m.value.decode())"
    )
    said = subprocess.run(
        [sys.executable, "-c", call, str(library)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert re.fullmatch(r"2 cuda\w+(\(\w+\))?: [^\n]+\n", said.stdout), said.stdout + said.stderr


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHES)
def test_every_function_is_called(entries, arch):
    missing = set(names_of(arch)) - entries[arch].keys()
    assert not missing, f"no kernel in {', '.join(SOURCES[arch])} for {sorted(missing)}"


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHES)
def test_each_form_of_a_comment_is_what_comes_out(entries, arch):
    absent = [
        f"{name}: {form}"
        for name in names_of(arch)
        for form in forms_of(name, arch)
        if not re.search(r"(?<![\w.])" + pattern(form).pattern + r"\s*;", entries[arch][name])
    ]
    assert not absent, "\n".join(absent)


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHES)
def test_nothing_comes_out_that_the_comment_does_not_say(entries, arch):
    support = [form for name in SUPPORT for form in forms_of(name, arch)]
    unexplained = []
    for name in names_of(arch):
        allowed = [pattern(form) for form in [*forms_of(name, arch), *support]]
        unexplained += [
            f"{name}: {statement}"
            for statement in inline_statements(entries[arch][name])
            if not any(known.fullmatch(statement) for known in allowed)
        ]
    assert not unexplained, "\n".join(unexplained)


@needs_nvcc
@pytest.mark.parametrize(
    ("arch", "name", "count"),
    [
        ("sm100a", "tcgen05_ld_32x32b", 8),
        ("sm100a", "tcgen05_ld_16x64b", 8),
        ("sm100a", "tcgen05_ld_16x256b", 6),
        ("sm90a", "wgmma_mma_async_f32_e4m3_e4m3", 64),
        ("sm90a", "wgmma_mma_async_f32_f16_f16", 64),
    ],
)
def test_element_i_of_an_array_is_register_i(entries, arch, name, count):
    """The kernels store element i behind element i - 1, right after each load or product."""
    opcode = r"(?:tcgen05\.ld|wgmma\.mma_async)\.sync\S+ "
    body = entries[arch][name]
    seen = 0
    for match in re.finditer(opcode + r"\{([^}]*)\}", body):
        registers = re.split(r",\s*", match[1])
        stores = re.findall(
            r"st\.global\.\w+\s+\[%rd\d+(?:\+(\d+))?\], (%\w+);", body[match.end() :]
        )
        stored = {int(offset or 0) // 4: register for offset, register in stores[: len(registers)]}
        assert [stored[i] for i in range(len(registers))] == registers
        assert len(set(registers)) == len(registers)
        seen += 1
    assert seen == count


@needs_nvcc
@pytest.mark.parametrize(("has", "lacks"), [("sm100a", "sm90a"), ("sm90a", "sm100a")])
def test_a_function_that_the_arch_lacks_is_named_where_it_is_called(has, lacks):
    source = HERE / f"every_function_{has}.cu"
    compiled = compile_one(source, lacks)
    assert compiled.code != 0
    only = {found.name for found in DECLARED if found.arches == (has,)}
    assert len(only) > 4
    arch = has.replace("sm", "sm_")
    said = set(re.findall(rf'failed with "(\w+)(?: with \w+)? needs {arch}"', compiled.log))
    assert said == only
    assert f"{source.name}" in compiled.log


# Written out from the hardware's field tables, not computed.
DESCRIPTORS = [
    ("(Mxf4nvf4Instruction{.m = 128, .n = 32}.bits())", 0x08080480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 64}.bits())", 0x08100480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 96}.bits())", 0x08180480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 128}.bits())", 0x08200480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 192}.bits())", 0x08300480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 256}.bits())", 0x08400480),
    ("(Mxf4nvf4Instruction{.m = 256, .n = 256}.bits())", 0x10400480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 32, .scales = ScaleType::kUe8m0}.bits())", 0x08880480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 32, .negate_a = true}.bits())", 0x08082480),
    ("(Mxf4nvf4Instruction{.m = 128, .n = 32, .negate_b = true}.bits())", 0x08084480),
    ("tcgen05_smem_descriptor(kTileSw128, 0)", 0x4000404000010000),
    ("tcgen05_smem_descriptor(kTileSw128, 0x400)", 0x4000404000010040),
    ("tcgen05_smem_descriptor(kTileSw128, 0x3fc00)", 0x4000404000013FC0),
    ("tcgen05_smem_descriptor(kTileSw128, 0x01000400)", 0x4000404000010040),
    ("tcgen05_smem_descriptor(kTileScales, 0x200)", 0x0000400800000020),
    ("tcgen05_smem_descriptor(SmemTile{SmemSwizzle::k64B, 16, 512}, 0)", 0x8000402000010000),
    ("tcgen05_smem_descriptor(SmemTile{SmemSwizzle::k32B, 16, 256}, 0)", 0xC000401000010000),
    ("tcgen05_smem_descriptor(SmemTile{SmemSwizzle::kNone, 2048, 128}, 0)", 0x0000400800800000),
    ("wgmma_smem_descriptor(kTileSw128, 0x400)", 0x4000004000010040),
    (
        "smem_descriptor_advance(tcgen05_smem_descriptor(kTileSw128, 0x400), 96)",
        0x4000404000010046,
    ),
]
SHAPES = [
    ("{.m = 128, .n = 8}", 1, True),
    ("{.m = 128, .n = 12}", 1, False),
    ("{.m = 128, .n = 264}", 1, False),
    ("{.m = 128, .n = 0}", 1, False),
    ("{.m = 256, .n = 128}", 1, False),
    ("{.m = 256, .n = 128}", 2, True),
    ("{.m = 256, .n = 24}", 2, False),
    ("{.m = 64, .n = 128}", 1, False),
]


@needs_nvcc
def test_descriptors(tmp_path):
    asserts = [f"static_assert({code} == {value:#x});" for code, value in DESCRIPTORS]
    asserts += [
        f"static_assert(Mxf4nvf4Instruction{shape}.valid({ctas}) == {str(valid).lower()});"
        for shape, ctas, valid in SHAPES
    ]
    source = tmp_path / "descriptors.cu"
    start = '#include "descriptors.cuh"\nusing namespace kb;\n'
    source.write_text(start + "\n".join(asserts) + "\n")
    compiled = compile_one(source, "sm100a")
    assert compiled.code == 0, compiled.log


def outside_backend() -> list[Path]:
    root = COMMON.parents[1]
    files = [path for top in ("kernels", "moe") for path in (root / top).rglob("*.cu*")]
    return [path for path in files if COMMON / "backend" not in path.parents]


@pytest.mark.parametrize(
    ("what", "forbidden"),
    [
        ("asm", r"\b(asm|__asm__)\b"),
        ("a condition on the target", r"#\s*(if|ifdef|ifndef|elif)\b|__CUDA_ARCH"),
        ("a launch", r"<<<"),
        ("a CUDA header", r"#include\s*<(cuda|cooperative_groups|mma)"),
        ("static shared memory", r"__shared__"),
    ],
)
def test_only_backends_hold(what, forbidden):
    files = outside_backend()
    assert len(files) > len(HEADERS)
    found = [
        f"{path.relative_to(COMMON.parents[1])}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(forbidden, line.partition("//")[0])
    ]
    assert not found, f"{what} outside backend/:\n" + "\n".join(found)


@pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")
def test_public_headers_are_plain_cpp(tmp_path):
    """Nothing outside a backend needs CUDA: an executor on the CPU can stand behind it."""
    compiler = build.host_compiler()
    assert compiler is not None
    for name in (*(header.stem for header in HEADERS), "shared_storage", "rt"):
        (tmp_path / f"{name}.inl").write_text("")
    (tmp_path / "wait.inl").write_text(
        "namespace kb { template <typename Sem, typename Scope> inline void "
        "mbarrier_wait_parity(Sem, Scope, const Mbarrier*, uint32_t) {} }\n"
    )
    macros = [f"#define KB_{name} inline" for name in ("DEVICE", "HOST_DEVICE")]
    target = "namespace kb { struct Target {}; }"
    (tmp_path / "executor.inl").write_text("\n".join([*macros, target, ""]))
    headers = [*HEADERS, *OTHER_HEADERS]
    source = tmp_path / "all.cpp"
    source.write_text("".join(f'#include "{path.relative_to(COMMON)}"\n' for path in headers))
    command = [str(compiler.path), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-undefined-inline", "-I", str(COMMON), "-I", str(tmp_path), str(source)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_asm_is_volatile_with_a_memory_clobber_unless_it_only_computes():
    pure = re.compile(r"(mov|mul|prmt|cvt|mapa|getctarank|createpolicy)\.")
    statements = []
    for path in sorted(COMMON.glob("backend/sm*/*.inl")):
        text = path.read_text()
        for match in re.finditer(r"\basm( volatile)?\((.*?)\)\s*;", text, re.S):
            statements.append((path, match[1], match[2]))
    assert len(statements) > 80
    for path, volatile, body in statements:
        opcode = re.sub(r"^\"(\{[^\"]*?; )?", "", body.strip())
        where = f"{path.name}: {body.strip()[:60]}"
        if volatile:
            assert re.search(r':\s*"memory"\s*\\?\s*$', body), f"no memory clobber: {where}"
        else:
            assert pure.match(opcode), f"not volatile: {where}"


def test_backends_hold_the_same_files():
    folders = [path for path in (COMMON / "backend").iterdir() if path.is_dir()]
    assert {folder.name for folder in folders} == {*CODE, "emu"}
    wanted = {f"{header.stem}.inl" for header in HEADERS} - {"types.inl"}
    wanted |= {"executor.inl", "shared_storage.inl", "wait.inl", "rt.inl"}
    for folder in folders:
        assert wanted <= {path.name for path in folder.glob("*.inl")}, folder.name
