"""Arguments of Triton's launches, and torch without a GPU, neither of which needs Triton."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
import torch

from kernelbench.ptx.arguments import memory_of
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu
from kernelbench.ptx.hosts.triton_arguments import Given, number_bytes, tensor_map


def test_numbers_by_their_type():
    assert number_bytes("i32", True) == 1
    assert number_bytes("fp32", 1) == 1.0 and isinstance(number_bytes("fp32", 1), float)
    assert number_bytes("fp16", 1.5) == torch.tensor(1.5).half().view(torch.int16).numpy().tobytes()
    # Cut, not rounded.
    assert number_bytes("bf16", 1.99999) == b"\xff\x3f"


def test_arguments_become_flat_and_constants_go():
    x, y = torch.zeros(4), torch.zeros(6)
    signature = {"x": "*fp32", "pair": ("i32", "*fp32"), "none": "*i32", "B": "constexpr"}
    given = Given(signature, (), (x, (7, y), None, 64))
    assert given.values == [x.data_ptr(), 7, y.data_ptr(), 0]
    assert set(given.tensors) == {"x", "pair[1]"}
    # Addresses do not tell launches apart, shapes and numbers do.
    again = Given(signature, (), (torch.ones(4), (7, y), None, 64))
    other = Given(signature, (), (x, (8, y), None, 64))
    assert given.form() == again.form() != other.form()


def test_what_wraps_a_tensor_is_its_memory():
    # flag_gems gives kernels views that are no tensors, but have a tensor's methods.
    tensor = torch.arange(8)
    view = SimpleNamespace(
        data_ptr=lambda: tensor.data_ptr() + 16, untyped_storage=tensor.untyped_storage,
        shape=(6,), dtype=tensor.dtype,
    )  # fmt: skip
    given = Given({"x": "*i64"}, (), (view,))
    assert given.values == [tensor.data_ptr() + 16]
    shown = LiveTensors().storages(given.tensors)
    assert {name: memory_of(each) for name, each in shown.items()} == {"x": (tensor.data_ptr(), 64)}


def descriptor(tensor, padding="zero"):
    return SimpleNamespace(
        base=tensor, shape=list(tensor.shape), strides=list(tensor.stride()), padding=padding
    )


META = {
    "block_size": [16, 64], "elem_size": 2, "elem_type": 8, "swizzle": 3, "fp4_padded": False
}  # fmt: skip


def test_a_tensor_map_has_dimensions_innermost_first():
    image = tensor_map(4096, descriptor(torch.zeros(5, 128), "nan"), META)
    assert len(image) == 128
    _, address, *rest = struct.unpack_from("<Q8xQ5Q4Q5H5B5B", image)
    assert address == 4096
    assert rest[:5] == [128, 5, 0, 0, 0]
    assert rest[5:9] == [256, 0, 0, 0], "strides in bytes, without the innermost"
    assert rest[9:14] == [64, 16, 0, 0, 0]
    # Rank, bfloat16 as the driver numbers it, no interleave, swizzle, fill with NaN.
    assert rest[19:] == [2, 10, 0, 3, 1]


def test_descriptors_with_and_without_a_map():
    tensor = torch.zeros(5, 128)
    signature = {"d": "tensordesc<bf16[16, 64]>"}
    with_map = Given(signature, (META,), (descriptor(tensor),)).values
    assert isinstance(with_map[0], bytes) and with_map[1:] == [5, 128, 128, 1]
    without = Given(signature, (), (descriptor(tensor),)).values
    assert without == [tensor.data_ptr(), 5, 128, 128, 1, False, 5, 128, 128, 1]


def test_cuda_is_the_cpu_for_a_while():
    before = torch.cuda.is_available, torch.cuda.synchronize
    with cuda_on_cpu(90, 4) as live:
        x = torch.ones(3, device="cuda")
        y = torch.arange(3, device=torch.device("cuda", 0)).to("cuda:0").cuda()
        assert x.device.type == y.device.type == "cuda" and x.is_cuda
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == 4
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
        start.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
        z = x.pin_memory()
        assert z is x
        storages = live.storages({"x": x})
    assert (torch.cuda.is_available, torch.cuda.synchronize) == before
    assert not x.is_cuda
    addresses = {memory_of(each)[0]: name for name, each in storages.items()}
    assert addresses[x.data_ptr()] == "x" and y.data_ptr() in addresses


def test_memory_is_known_as_long_as_it_lives():
    with cuda_on_cpu(90, 4) as live:
        big = torch.zeros(100, device="cuda")
        view = big[10:20]
        address = big.data_ptr()
        del big
        (storage,) = live.storages({}).values()
        assert memory_of(storage) == (address, 400)
        del view, storage
        assert not live.storages({})


def test_torch_is_as_before_after_an_error():
    before = torch.cuda.is_available
    with pytest.raises(ValueError, match="mine"), cuda_on_cpu(90, 4):
        raise ValueError("mine")
    assert torch.cuda.is_available is before
