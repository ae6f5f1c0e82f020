"""Launches that ``gpu_conformance.py prepare`` wrote, made on a GPU by the CUDA driver.

python gpu_replay.py FOLDER RESULT.npz      every module, each in a process of its own

It takes a GPU with its driver, and numpy: no toolkit, no kernelbench.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

#: Seconds for all launches of a module: a kernel that hangs must not take the others with it.
_LIMIT_S = 25
_COOPERATIVE, _CLUSTER = 2, 4
#: Of the emulated map (``MapImage`` of the runtime): numpy's type, count, byte offset.
_FIELDS = {
    "dims": ("u8", 5, 16), "strides": ("u8", 4, 56), "box": ("u2", 5, 88),
    "steps": ("u1", 5, 98), "rank": ("u1", 1, 103), "type": ("u1", 1, 104),
}  # fmt: skip
_MAP_BYTES = 128
#: Up to f32 the driver numbers types as PTX does.
_MOST_TYPE = 7


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )  # fmt: skip


class Driver:
    """libcuda with a context on device 0."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()

    def call(self, function: str, *arguments: Any) -> None:
        """A driver function; raises unless it succeeds."""
        status = getattr(self._cuda, function)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'?').decode()} ({status})")

    def module(self, image: bytes) -> ctypes.c_void_p:
        """A cubin, loaded."""
        found = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(found), image)
        return found

    def tensor_map(self, address: int, emulated: bytes) -> bytes:
        """The map that the emulated one describes, without swizzle."""
        room = ctypes.create_string_buffer(256)
        at = -ctypes.addressof(room) % 64
        field = {
            name: np.frombuffer(emulated, kind, count, offset).tolist()
            for name, (kind, count, offset) in _FIELDS.items()
        }
        ((rank,), (kind,)) = field["rank"], field["type"]
        if kind > _MOST_TYPE:
            raise RuntimeError(f"a map of type {kind}")
        self.call(
            "cuTensorMapEncodeTiled", ctypes.byref(room, at), kind, rank,
            ctypes.c_void_p(address), (ctypes.c_uint64 * 5)(*field["dims"]),
            (ctypes.c_uint64 * 4)(*field["strides"]), (ctypes.c_uint32 * 5)(*field["box"]),
            (ctypes.c_uint32 * 5)(*field["steps"]), 0, 0, 0, 0,
        )  # fmt: skip
        return room.raw[at : at + _MAP_BYTES]


def _launched(
    driver: Driver, function: Any, launch: dict[str, Any], arrays: Any
) -> list[np.ndarray]:
    """A launch's arrays afterwards."""
    given = [arrays[name] for name in launch["given"]]
    places = []
    for each in given:
        place = ctypes.c_uint64()
        # Kernels may rely on alignment that allocations of their own have.
        driver.call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(each.nbytes, 256)))
        places.append(place)
    for place, each in zip(places, given, strict=True):
        data = each.tobytes()
        source = launch["maps"].get(str(places.index(place)))
        if source is not None:
            data = driver.tensor_map(places[source].value, data) + data[_MAP_BYTES:]
        driver.call("cuMemcpyHtoD_v2", place, data, ctypes.c_size_t(len(data)))
    values: list[Any] = [
        places[each] if isinstance(each, int) else ctypes.create_string_buffer(bytes.fromhex(each))
        for each in launch["args"]
    ]
    parameters = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
    attributes = (_Attribute * 2)()
    count = 0
    for wanted, number, words in (
        (launch["cooperative"], _COOPERATIVE, [1]),
        (launch["cluster"] > 1, _CLUSTER, [launch["cluster"], 1, 1]),
    ):
        if wanted:
            attributes[count].id = number
            attributes[count].value[: len(words)] = words
            count += 1
    config = _Config(shared=launch["shared"], attributes=attributes, count=count)
    config.grid[:], config.block[:] = launch["grid"], launch["block"]
    driver.call("cuLaunchKernelEx", ctypes.byref(config), function, parameters, None)
    driver.call("cuCtxSynchronize")
    made = []
    for place, each in zip(places, given, strict=True):
        room = np.zeros_like(each)
        driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(room.ctypes.data), place,
                    ctypes.c_size_t(room.nbytes))  # fmt: skip
        driver.call("cuMemFree_v2", place)
        made.append(room)
    return made


def run_module(folder: Path, name: str, result: Path) -> None:
    """Every launch of one module; what was made is written even if a later one fails."""
    launches = [each for each in json.loads((folder / "launches.json").read_text())
                if each["module"] == name]  # fmt: skip
    arrays = dict(np.load(folder / f"{name}.npz"))
    driver, launch = Driver(), {"kernel": "load"}
    made: dict[str, Any] = {}
    notes = {"device": driver.name, "error": ""}
    try:
        module = driver.module((folder / f"{name}.cubin").read_bytes())
        for launch in launches:
            function = ctypes.c_void_p()
            driver.call(
                "cuModuleGetFunction", ctypes.byref(function), module, launch["kernel"].encode()
            )
            for at, each in enumerate(_launched(driver, function, launch, arrays)):
                if at in launch["compared"]:
                    made[f"{launch['id']}_{at}"] = each
    except RuntimeError as error:
        notes["error"] = f"{launch['kernel']}: {error}"
    np.savez_compressed(result, notes=json.dumps(notes), **made)


def main() -> int:
    """The command."""
    folder, result = Path(sys.argv[1]), Path(sys.argv[2])
    if len(sys.argv) == 4:
        run_module(folder, sys.argv[3], result)
        return 0
    names = sorted(each.stem for each in folder.glob("*.cubin"))
    everything: dict[str, Any] = {}
    for name in names:
        part = result.with_name(f"{name}.part.npz")
        command = [sys.executable, __file__, str(folder), str(part), name]
        try:
            ended = subprocess.run(command, timeout=_LIMIT_S, capture_output=True, text=True)
            error = ended.stderr.strip()[-300:]
        except subprocess.TimeoutExpired:
            error = f"not done in {_LIMIT_S} s"
        found = dict(np.load(part)) if part.exists() else {"notes": json.dumps({"error": error})}
        notes = json.loads(str(found.pop("notes")))
        print(f"{name}: {len(found)} arrays, {notes.get('error') or 'no error'}", flush=True)
        everything |= found | {f"notes {name}": json.dumps(notes)}
        part.unlink(missing_ok=True)
        np.savez_compressed(result, **everything)
    return 0


if __name__ == "__main__":
    sys.exit(main())
