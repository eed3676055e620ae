"""SpMM on CSR, row-major B and C, any number of dense columns."""

from components.kernel.families.base import (
    INDEX_TYPES,
    Family,
    Parameters,
    header,
    index_fits,
    pointer,
    signature,
    unroll_line,
)
from components.kernel.families.base import (
    load as hinted,
)
from components.kernel.precision import Precision
from components.matrix.features import StructureFeatures

_LOADS = ("plain", "ldg")


def _signature(precision: Precision, index: str) -> str:
    return signature(
        "spmm",
        pointer("int", "row_ptr"),
        pointer(INDEX_TYPES[index], "col_idx"),
        pointer(precision.value, "values"),
        pointer(precision.value, "B"),
        f"{precision.output}* __restrict__ C",
        "int rows",
        "int width",
    )


def _term(load: str, column: str) -> str:
    return f"{hinted('values', 'j', load)} * B[{hinted('col_idx', 'j', load)} * width + {column}]"


def render_row_lanes(precision: Precision, lanes: int, block: int, unroll: int, load: str, index: str) -> str:
    """A group of `lanes` per row, each lane one dense column after the other; B is read in coalesced pieces."""
    rows_per_block = block // lanes
    return (
        header(
            f"csr index={index}",
            (f"spmm grid=ceil_div(rows,{rows_per_block}) block={block}",),
            f"even rows: {lanes} lanes each, one dense column a lane",
            precision,
        )
        + _signature(precision, index)
        + f"""  int row = blockIdx.x * {rows_per_block} + threadIdx.x / {lanes};
  if (row >= rows) return;
  for (int c = threadIdx.x % {lanes}; c < width; c += {lanes}) {{
    {precision.output} sum = 0;
    {unroll_line(unroll, "    ")}for (int j = row_ptr[row]; j < row_ptr[row + 1]; ++j) sum += {_term(load, "c")};
    C[row * width + c] = sum;
  }}
}}
"""
    )


def render_element(precision: Precision, block: int, unroll: int, load: str, index: str) -> str:
    """A thread per element of C; neighbouring threads share a row and read neighbouring columns of B."""
    return (
        header(
            f"csr index={index}",
            (f"spmm grid=ceil_div(rows*width,{block}) block={block}",),
            "few dense columns: one thread an element of C",
            precision,
        )
        + _signature(precision, index)
        + f"""  int id = blockIdx.x * {block} + threadIdx.x, row = id / width, c = id % width;
  if (row >= rows) return;
  {precision.output} sum = 0;
  {unroll_line(unroll, "  ")}for (int j = row_ptr[row]; j < row_ptr[row + 1]; ++j) sum += {_term(load, "c")};
  C[id] = sum;
}}
"""
    )


def render_split(precision: Precision, threads: int, block: int, load: str, index: str) -> str:
    """A warp per row and dense column chunk: `threads` lanes split the row, 32 / threads dense columns side by side."""
    columns = 32 // threads
    warps = block // 32
    return (
        header(
            f"csr index={index}",
            (f"spmm grid=ceil_div(rows,{warps}) block={block}",),
            f"long rows: {threads} lanes share a row for each of {columns} dense columns",
            precision,
        )
        + _signature(precision, index)
        + f"""  int row = blockIdx.x * {warps} + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  for (int base = 0; base < width; base += {columns}) {{
    int c = base + lane % {columns};
    {precision.output} sum = 0;
    if (c < width)
      for (int j = row_ptr[row] + lane / {columns}; j < row_ptr[row + 1]; j += {threads}) sum += {_term(load, "c")};
    for (int step = 16; step >= {columns}; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane < {columns} && c < width) C[row * width + c] = sum;
  }}
}}
"""
    )


def _sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features)


def _split_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features) and features.row_len_mean >= int(parameters["threads"])


FAMILIES = (
    Family(
        "spmm_row_lanes",
        "spmm",
        "rows of even length, many dense columns",
        {"lanes": (4, 8, 16, 32), "block": (128, 256), "unroll": (1, 4), "load": _LOADS, "index": ("i32", "u16")},
        render_row_lanes,
        _sensible,
    ),
    Family(
        "spmm_element",
        "spmm",
        "few dense columns or short rows",
        {"block": (128, 256, 512), "unroll": (1, 4), "load": _LOADS, "index": ("i32", "u16")},
        render_element,
        _sensible,
    ),
    Family(
        "spmm_split",
        "spmm",
        "long rows, few dense columns",
        {"threads": (4, 8, 16), "block": (128, 256), "load": _LOADS, "index": ("i32", "u16")},
        render_split,
        _split_sensible,
    ),
)
