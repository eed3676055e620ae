"""Numbers that are a function of a key and an index, the same on the host and on the device.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); components/judge/device_kernels.py has the device's side.
"""

import numpy as np
from numpy.typing import NDArray


def mix(key: np.uint64, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each index."""
    with np.errstate(over="ignore"):
        z = (key + index) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def signed(key: np.uint64, count: int) -> NDArray[np.float64]:
    """`count` numbers of random sign, magnitudes uniform in [0.25, 1]: nothing hides behind a zero or a one."""
    bits = mix(key, np.arange(count, dtype=np.uint64))
    magnitude = 0.25 + 0.75 * ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    return np.where(bits & np.uint64(1), -magnitude, magnitude)


def coins(key: np.uint64, count: int) -> NDArray[np.bool_]:
    """`count` fair coins."""
    return (mix(key, np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.bool_)
