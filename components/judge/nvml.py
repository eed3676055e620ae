"""Clocks, temperature and throttle reasons of a GPU through the driver's own library, libnvidia-ml.

Function names and bits: nvml.h of CUDA 12 and 13. A reading takes some microseconds.
"""

import ctypes
from dataclasses import asdict, dataclass
from typing import Any

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_GPU_SENSOR = 0  # nvmlTemperatureSensors_t
# nvmlClocksEventReasons: what lowers the clocks. Idle (0x1) and application clocks (0x2) are no throttling.
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Clocks:
    """One reading: MHz, degrees Celsius; `throttle` is empty when nothing holds the clocks down."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    throttle: str = ""

    def to_dict(self) -> dict[str, float | str]:
        """Plain JSON types."""
        return asdict(self)


class Nvml:
    """One GPU's sensors.

    Args:
        pci_bus_id: as the CUDA runtime prints it, so that CUDA_VISIBLE_DEVICES changes nothing.

    Raises:
        OSError: the library is missing or refuses.
    """

    def __init__(self, pci_bus_id: str) -> None:
        self._library: Any = ctypes.CDLL("libnvidia-ml.so.1")
        self._handle = ctypes.c_void_p()
        self._check("nvmlInit_v2")
        self._check("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.encode(), ctypes.byref(self._handle))

    def read(self) -> Clocks:
        """The state at this moment."""
        reasons = ctypes.c_ulonglong()
        self._check("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle, ctypes.byref(reasons))
        held = [name for bit, name in THROTTLE_REASONS.items() if reasons.value & bit]
        return Clocks(
            self._number("nvmlDeviceGetClockInfo", _SM),
            self._number("nvmlDeviceGetClockInfo", _MEMORY),
            self._number("nvmlDeviceGetTemperature", _GPU_SENSOR),
            ", ".join(held),
        )

    def _number(self, function: str, which: int) -> int:
        value = ctypes.c_uint()
        self._check(function, self._handle, which, ctypes.byref(value))
        return int(value.value)

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise OSError(f"{function}: status {status}")
