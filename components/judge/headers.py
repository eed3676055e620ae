"""The headers a program may include: real ones of the toolkit, or small own ones, always handed over in memory.

NVRTC gets no include path, so a program cannot make it open a file. The real headers come from the NVRTC wheel itself
(13.5 and later carry them), or from the include folder of an installed CUDA runtime.
"""

import contextlib
import functools
import importlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.errors import UserError
from components.files import write_text

TOOLKIT_HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "math_constants.h", "vector_types.h")
_KEPT: dict[str, dict[str, str]] = {}  # closures by name, from `preload_headers`
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)

_QUOTE_BEFORE_COMMENT = re.compile(r"[\"'][^\n]*?/\*")
_ANY_INCLUDE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)\s*(?:include|include_next|import)\b([^\n]*)", re.MULTILINE)

_INTEGERS = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""
_FLOATS = """#pragma once
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
"""
_LIMITS = """#pragma once
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
"""
# Enough of cooperative_groups for blocks and tiles of one warp; the toolkit's own takes over a second to compile.
_GROUPS = """#pragma once
namespace cooperative_groups {
struct thread_block {
  __device__ static void sync() { __syncthreads(); }
  __device__ static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  __device__ static unsigned num_threads() { return size(); }
  __device__ static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
};
__device__ inline thread_block this_thread_block() { return thread_block(); }
template <unsigned Size> struct thread_block_tile {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile holds 1, 2, 4, 8, 16 or 32 threads");
  __device__ static unsigned lane() { return thread_block::thread_rank() & 31u; }
  __device__ static unsigned mask() { return (0xffffffffu >> (32u - Size)) << (lane() & ~(Size - 1u)); }
  __device__ static unsigned thread_rank() { return lane() & (Size - 1u); }
  __device__ static constexpr unsigned size() { return Size; }
  __device__ static constexpr unsigned num_threads() { return Size; }
  __device__ static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
  __device__ static unsigned meta_group_size() { return (thread_block::size() + Size - 1u) / Size; }
  __device__ static void sync() { __syncwarp(mask()); }
  template <class T> __device__ static T shfl(T v, int from) { return __shfl_sync(mask(), v, from, Size); }
  template <class T> __device__ static T shfl_up(T v, unsigned d) { return __shfl_up_sync(mask(), v, d, Size); }
  template <class T> __device__ static T shfl_down(T v, unsigned d) { return __shfl_down_sync(mask(), v, d, Size); }
  template <class T> __device__ static T shfl_xor(T v, unsigned d) { return __shfl_xor_sync(mask(), v, d, Size); }
  __device__ static unsigned ballot(int p) { return (__ballot_sync(mask(), p) & mask()) >> (lane() & ~(Size - 1u)); }
  __device__ static int any(int p) { return __any_sync(mask(), p); }
  __device__ static int all(int p) { return __all_sync(mask(), p); }
};
template <unsigned Size, class Group> __device__ inline thread_block_tile<Size> tiled_partition(const Group&) {
  return thread_block_tile<Size>();
}
template <class Group> __device__ inline void sync(const Group& group) { group.sync(); }
template <class T> struct plus { __device__ T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { __device__ T operator()(T a, T b) const { return a < b ? a : b; } };
template <class T> struct greater { __device__ T operator()(T a, T b) const { return a > b ? a : b; } };
template <class Group, class T, class Op> __device__ inline T reduce(const Group& group, T v, Op op) {
#pragma unroll
  for (unsigned d = Group::size() / 2; d > 0; d /= 2) v = op(v, group.shfl_xor(v, d));
  return v;
}
}
"""
_EMPTY = "#pragma once\n"  # what NVRTC has built in already
OWN_HEADERS: Mapping[str, str] = {
    "stdint.h": _INTEGERS,
    "cstdint": _INTEGERS,
    "float.h": _FLOATS,
    "cfloat": _FLOATS,
    "limits.h": _LIMITS,
    "climits": _LIMITS,
    "stddef.h": _EMPTY,
    "cstddef": _EMPTY,
    "math.h": _EMPTY,
    "cmath": _EMPTY,
    "cuda_runtime.h": _EMPTY,
    "device_launch_parameters.h": _EMPTY,
    "cooperative_groups.h": _GROUPS,
    "cooperative_groups/reduce.h": '#pragma once\n#include "cooperative_groups.h"\n',
}


def unknown_include(source: str) -> tuple[int, str] | None:
    """(line, name) of the first #include that names none of the headers offered, or no literal name at all.

    Line splices are undone first, so that a directive cannot hide behind one. Comments count as blanks, which may stand
    between the parts of a directive; where a quote comes before one on its line, they are read as text as well, since
    a compiler may then see no comment.
    """
    joined = re.sub(r"\\[ \t]*\r?\n", "", source)
    blanked = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), joined, flags=re.DOTALL)
    for text in (blanked, joined) if _QUOTE_BEFORE_COMMENT.search(joined) else (blanked,):
        for directive in _ANY_INCLUDE.finditer(text):
            name = re.match(r'\s*[<"]([^>"]+)[>"]', directive.group(1))
            if name is None or name.group(1) not in (*OWN_HEADERS, *TOOLKIT_HEADERS):
                number = text.count("\n", 0, directive.start(1)) + 1
                return number, (name.group(1) if name else directive.group(1).strip()) or "nothing"
    return None


def headers_for(source: str) -> dict[str, str]:
    """Name -> text of every header that `source` includes, followed through the headers themselves.

    A name outside the lists above is left out, so that NVRTC reports it by name as not found.

    Raises:
        UserError: a real header is asked for and the installation holds none.
    """
    found: dict[str, str] = {}
    wanted = _INCLUDE.findall(source)
    for name in wanted:
        if name in OWN_HEADERS:
            found[name] = OWN_HEADERS[name]
            found.update({inner: OWN_HEADERS[inner] for inner in _INCLUDE.findall(OWN_HEADERS[name])})
        elif name in TOOLKIT_HEADERS:
            found.update(_KEPT.get(name) or _toolkit_closure(name))
    return found


@functools.cache
def _toolkit_closure(name: str) -> dict[str, str]:
    """A toolkit header and those it includes; host-only ones, which NVRTC skips, may be missing."""
    folders = _toolkit_folders()
    found: dict[str, str] = {}
    todo = [name]
    while todo:
        current = todo.pop()
        if current in found:
            continue
        for folder in folders:
            if (folder / current).is_file():
                found[current] = (folder / current).read_text(encoding="utf-8", errors="replace")
                todo += _INCLUDE.findall(found[current])
                break
    if name not in found:
        raise UserError(f"{name}: the CUDA headers were not found; install nvidia-cuda-nvrtc >= 13.5 or set CUDA_HOME")
    return found


@functools.cache
def _toolkit_folders() -> tuple[Path, ...]:
    candidates: list[Path] = []
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            candidates.append(Path(value) / "include")
    candidates += [Path("/usr/local/cuda/include"), *_package_includes()]
    installed = [folder for folder in candidates if (folder / "cuda_fp16.h").is_file()]
    bundled = _bundled_folder()
    folders = [bundled] if bundled is not None else installed[:1]
    return tuple(path for folder in folders for path in (folder, folder / "cccl") if path.is_dir())


def _package_includes() -> list[Path]:
    """Include folders of the CUDA wheels (nvidia/cu13/include and the like)."""
    try:
        import nvidia  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return []
    parents = [Path(path) for path in nvidia.__path__]
    return [folder for parent in parents for folder in sorted(parent.glob("*/include"))]


def _bundled_folder() -> Path | None:
    """Unpack the headers inside the NVRTC wheel (0.1 s, 26 MB) to a folder that ends with this process."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError:
        return None
    install: Any = getattr(nvrtc, "nvrtcInstallBundledHeaders", None)  # since 13.5
    if install is None:
        return None
    holder = tempfile.TemporaryDirectory(prefix="sparserl-headers-")
    try:
        result, _ = install(holder.name.encode(), 0)
    except RuntimeError:  # newer bindings over an older NVRTC library, which has no headers inside
        holder.cleanup()
        return None
    if int(result) != 0 or not (Path(holder.name) / "cuda_fp16.h").is_file():
        holder.cleanup()
        return None
    _HOLDERS.append(holder)
    return Path(holder.name)


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def preload_headers(kept: Path | None = None) -> None:
    """Read the toolkit's headers into memory, so that processes forked from this one need no file.

    Args:
        kept: a file that holds them from an earlier time (unpacking takes a second or two); written when missing.
    """
    if kept is not None and kept.is_file():
        with contextlib.suppress(OSError, ValueError):
            _KEPT.update(json.loads(kept.read_text(encoding="utf-8")))
            return
    found = {}
    for name in TOOLKIT_HEADERS:
        with contextlib.suppress(UserError):  # an installation without them: a program that asks gets the error
            found[name] = _toolkit_closure(name)
    while _HOLDERS:
        _HOLDERS.pop().cleanup()
    if kept is not None:
        with contextlib.suppress(OSError):
            write_text(kept, json.dumps(found))
