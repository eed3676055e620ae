"""SpMV on CSR: a thread, a group of threads or a block per row, and rows streamed through shared memory."""

from components.kernel.families.base import (
    INDEX_TYPES,
    LOADS,
    SPMV_PRECISIONS,
    Family,
    Parameters,
    header,
    index_fits,
    pointer,
    product,
    signature,
    unroll_line,
)
from components.kernel.precision import Precision
from components.matrix.features import StructureFeatures


def _signature(precision: Precision, index: str) -> str:
    return signature(
        "spmv",
        pointer("int", "row_ptr"),
        pointer(INDEX_TYPES[index], "col_idx"),
        pointer(precision.value, "values"),
        pointer(precision.value, "x"),
        f"{precision.output}* __restrict__ y",
        "int rows",
    )


def render_scalar(precision: Precision, block: int, unroll: int, load: str, index: str) -> str:
    """A thread per row; moves 8 bytes an entry (6 with 16-bit indices), uncoalesced unless rows are very short."""
    return (
        header(
            f"csr index={index}",
            (f"spmv grid=ceil_div(rows,{block}) block={block}",),
            "short rows: one thread each",
            precision,
        )
        + _signature(precision, index)
        + f"""  int row = blockIdx.x * {block} + threadIdx.x;
  if (row >= rows) return;
  {precision.output} sum = 0;
  {unroll_line(unroll, "  ")}for (int j = row_ptr[row]; j < row_ptr[row + 1]; ++j)
    sum += {product("j", load, precision)};
  y[row] = sum;
}}
"""
    )


def render_vector(precision: Precision, threads: int, block: int, unroll: int, load: str, index: str) -> str:
    """A group of `threads` per row and a shuffle reduction (Bell and Garland, SC'09); coalesced from 8 threads on."""
    rows_per_block = block // threads
    return (
        header(
            f"csr index={index}",
            (f"spmv grid=ceil_div(rows,{rows_per_block}) block={block}",),
            f"even rows: {threads} threads each, then a shuffle sum",
            precision,
        )
        + _signature(precision, index)
        + f"""  int row = blockIdx.x * {rows_per_block} + threadIdx.x / {threads}, lane = threadIdx.x % {threads};
  {precision.output} sum = 0;
  if (row < rows) {{
    {unroll_line(unroll, "    ")}for (int j = row_ptr[row] + lane; j < row_ptr[row + 1]; j += {threads}) \
sum += {product("j", load, precision)};
  }}
  for (int step = {threads // 2}; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step, {threads});
  if (row < rows && lane == 0) y[row] = sum;
}}
"""
    )


def render_block(precision: Precision, block: int, unroll: int, load: str, index: str) -> str:
    """A block per row: warps reduce by shuffles, their sums meet in shared memory."""
    warps = block // 32
    return (
        header(f"csr index={index}", (f"spmv grid=rows block={block}",), "very long rows: a block each", precision)
        + _signature(precision, index)
        + f"""  __shared__ {precision.output} part[{warps}];
  int row = blockIdx.x, lane = threadIdx.x % 32;
  {precision.output} sum = 0;
  {unroll_line(unroll, "  ")}for (int j = row_ptr[row] + threadIdx.x; j < row_ptr[row + 1]; j += {block}) \
sum += {product("j", load, precision)};
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (lane == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {{
    for (int k = 1; k < {warps}; ++k) sum += part[k];
    y[row] = sum;
  }}
}}
"""
    )


def render_stream(precision: Precision, block: int, tile: int, load: str, index: str) -> str:
    """Products of `block` neighbouring rows pass through shared memory, coalesced, and each thread sums its row.

    After CSR-stream (Greathouse and Daga, SC'14), with tiles so that a row of any length is right.
    """
    return (
        header(
            f"csr index={index}",
            (f"spmv grid=ceil_div(rows,{block}) block={block}",),
            "uneven short rows: coalesced products staged in shared memory",
            precision,
        )
        + _signature(precision, index)
        + f"""  __shared__ {precision.output} part[{tile}];
  int first = blockIdx.x * {block}, row = first + threadIdx.x;
  int last = row_ptr[min(first + {block}, rows)];
  int begin = row < rows ? row_ptr[row] : last, end = row < rows ? row_ptr[row + 1] : last;
  {precision.output} sum = 0;
  for (int base = row_ptr[first]; base < last; base += {tile}) {{
    for (int j = base + threadIdx.x; j < min(base + {tile}, last); j += {block})
      part[j - base] = {product("j", load, precision)};
    __syncthreads();
    for (int j = max(begin, base); j < min(end, base + {tile}); ++j) sum += part[j - base];
    __syncthreads();
  }}
  if (row < rows) y[row] = sum;
}}
"""
    )


def _scalar_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features) and features.row_len_mean <= 16


def _vector_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    threads, mean = int(parameters["threads"]), max(1.0, features.row_len_mean)
    return index_fits(parameters, features) and (
        mean / 4 <= threads <= 2 * mean or threads == 2 or threads == 32 <= mean
    )


def _block_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features) and features.row_len_mean >= 48


def _stream_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features) and features.row_len_mean <= 32


FAMILIES = (
    Family(
        "csr_scalar",
        "spmv",
        "very short rows of even length",
        {"block": (64, 128, 256), "unroll": (1, 4), "load": LOADS, "index": ("i32", "u16")},
        render_scalar,
        _scalar_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "csr_vector",
        "spmv",
        "rows of even, moderate length",
        {
            "threads": (2, 4, 8, 16, 32),
            "block": (128, 256, 512),
            "unroll": (1, 2, 4),
            "load": LOADS,
            "index": ("i32", "u16"),
        },
        render_vector,
        _vector_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "csr_block",
        "spmv",
        "few, very long rows",
        {"block": (64, 128, 256), "unroll": (1, 4), "load": ("plain", "ldcs"), "index": ("i32", "u16")},
        render_block,
        _block_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "csr_stream",
        "spmv",
        "short rows of uneven length",
        {"block": (64, 128, 256), "tile": (512, 1024, 2048), "load": ("plain", "ldcs"), "index": ("i32", "u16")},
        render_stream,
        _stream_sensible,
        precisions=SPMV_PRECISIONS,
    ),
)
