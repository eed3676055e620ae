# ruff: noqa: N802 - the driver's own names
"""Guarded device memory on a stand-in for the driver: what is mapped, where blocks end, and that all is given back."""

import types
from typing import Any

import pytest

from components.judge.guarded import GuardedMemory, GuardsMissing

GRANULE = 2 << 20


class Driver:
    """Virtual memory management as CUDA's, with addresses that count up; `fails` names a function that refuses."""

    CUmemLocationType = types.SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAllocationType = types.SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAccess_flags = types.SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUmemAllocationGranularity_flags = types.SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM=0)

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.next = 1 << 32
        self.reserved: dict[int, int] = {}
        self.mapped: dict[int, int] = {}
        self.handles: set[int] = set()

    def CUmemAllocationProp(self) -> Any:
        return types.SimpleNamespace(location=types.SimpleNamespace())

    CUmemAccessDesc = CUmemAllocationProp

    def answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        return (801,) if name == self.fails else (0, *values)

    def cuMemGetAllocationGranularity(self, properties: Any, option: int) -> tuple[Any, ...]:
        return self.answer("cuMemGetAllocationGranularity", GRANULE)

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> tuple[Any, ...]:
        start, self.next = self.next, self.next + size
        self.reserved[start] = size
        return self.answer("cuMemAddressReserve", start)

    def cuMemCreate(self, size: int, properties: Any, flags: int) -> tuple[Any, ...]:
        if self.fails == "cuMemCreate":
            return (2,)
        self.handles.add(len(self.handles))
        return (0, len(self.handles) - 1)

    def cuMemMap(self, start: int, size: int, offset: int, handle: int, flags: int) -> tuple[Any, ...]:
        assert handle in self.handles
        if self.fails != "cuMemMap":
            self.mapped[start] = size
        return self.answer("cuMemMap")

    def cuMemSetAccess(self, start: int, size: int, access: list[Any], count: int) -> tuple[Any, ...]:
        assert self.mapped[start] == size
        assert access[0].flags == 3
        return self.answer("cuMemSetAccess")

    def cuMemUnmap(self, start: int, size: int) -> tuple[int]:
        assert self.mapped.pop(start) == size
        return (0,)

    def cuMemRelease(self, handle: int) -> tuple[int]:
        self.handles.remove(handle)
        return (0,)

    def cuMemAddressFree(self, start: int, size: int) -> tuple[int]:
        assert self.reserved.pop(start) == size
        return (0,)


@pytest.mark.parametrize("nbytes", [256, GRANULE - 256, GRANULE, GRANULE + 256])
def test_a_block_ends_where_its_mapping_ends_and_nothing_lies_around_it(nbytes: int) -> None:
    driver = Driver()
    memory = GuardedMemory(driver)
    assert not driver.mapped
    block = memory.alloc(nbytes)
    ((start, size),) = driver.mapped.items()
    ((reserved, around),) = driver.reserved.items()
    assert block.ptr + nbytes == start + size
    assert start <= block.ptr
    assert block.ptr % 256 == 0
    assert reserved + GRANULE == start
    assert start + size + GRANULE == reserved + around
    del block
    assert not driver.mapped
    assert not driver.reserved
    assert not driver.handles


@pytest.mark.parametrize("name", ["cuMemGetAllocationGranularity", "cuMemCreate", "cuMemMap"])
def test_a_driver_without_it_is_told_at_once_and_leaves_nothing_behind(name: str) -> None:
    driver = Driver(name)
    with pytest.raises(GuardsMissing, match=name):
        GuardedMemory(driver)
    assert not driver.mapped
    assert not driver.reserved
    assert not driver.handles


def test_odd_sizes_are_refused() -> None:
    memory = GuardedMemory(Driver())
    for nbytes in (0, -256, 100):
        with pytest.raises(ValueError, match="multiple of 256"):
            memory.alloc(nbytes)
