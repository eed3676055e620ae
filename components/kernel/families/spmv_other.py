"""SpMV on COO, SELL-C-sigma, DIA and BSR."""

from components.kernel.families.base import (
    INDEX_TYPES,
    LOADS,
    SPMV_PRECISIONS,
    Family,
    Parameters,
    header,
    index_fits,
    load,
    pointer,
    product,
    signature,
    unroll_line,
    widened,
)
from components.kernel.precision import Precision
from components.matrix.features import StructureFeatures


def render_coo(precision: Precision, block: int, load: str, index: str) -> str:
    """A thread per entry, a segmented warp sum, one atomic per row piece; 12 bytes an entry whatever the rows."""
    return (
        header(
            f"coo index={index}",
            (f"clear grid=ceil_div(rows,{block}) block={block}", f"spmv grid=ceil_div(nnz,{block}) block={block}"),
            "rows of any length: entries shared out evenly, segmented sums",
            precision,
        )
        + signature("clear", f"{precision.output}* y", "int rows")
        + f"""  int row = blockIdx.x * {block} + threadIdx.x;
  if (row < rows) y[row] = 0;
}}
"""
        + signature(
            "spmv",
            pointer("int", "row_idx"),
            pointer(INDEX_TYPES[index], "col_idx"),
            pointer(precision.value, "values"),
            pointer(precision.value, "x"),
            f"{precision.output}* __restrict__ y",
            "int nnz",
        )
        + f"""  int j = blockIdx.x * {block} + threadIdx.x, lane = threadIdx.x % 32;
  int row = j < nnz ? row_idx[j] : -1;
  {precision.output} sum = j < nnz ? {product("j", load, precision)} : 0;
  for (int step = 1; step < 32; step *= 2) {{
    {precision.output} before = __shfl_up_sync(0xffffffff, sum, step);
    int owner = __shfl_up_sync(0xffffffff, row, step);
    if (lane >= step && owner == row) sum += before;
  }}
  int next = __shfl_down_sync(0xffffffff, row, 1);
  if (row >= 0 && (lane == 31 || next != row)) atomicAdd(y + row, sum);
}}
"""
    )


def render_sell(precision: Precision, c: int, sigma: int, block: int, unroll: int, load: str, index: str) -> str:
    """A thread per row of a padded slice; coalesced, 8 bytes a slot (6 with 16-bit indices) and no row pointer."""
    return (
        header(
            f"sell c={c} sigma={sigma} index={index}",
            (f"spmv grid=ceil_div(slices*{c},{block}) block={block}",),
            f"rows of similar length: slices of {c}, coalesced",
            precision,
        )
        + signature(
            "spmv",
            pointer("int", "slice_ptr"),
            pointer(INDEX_TYPES[index], "col_idx"),
            pointer(precision.value, "values"),
            pointer("int", "row_perm"),
            pointer(precision.value, "x"),
            f"{precision.output}* __restrict__ y",
            "int slices",
        )
        + f"""  int id = blockIdx.x * {block} + threadIdx.x, slice = id / {c};
  if (slice >= slices) return;
  {precision.output} sum = 0;
  {unroll_line(unroll, "  ")}for (int j = slice_ptr[slice] + id % {c}; j < slice_ptr[slice + 1]; j += {c}) \
sum += {product("j", load, precision)};
  int row = row_perm[id];
  if (row >= 0) y[row] = sum;
}}
"""
    )


def render_dia(precision: Precision, block: int, unroll: int, load: str) -> str:
    """A thread per row over all diagonals; 4 bytes a slot, no index at all."""
    return (
        header(
            "dia",
            (f"spmv grid=ceil_div(rows,{block}) block={block}",),
            "few diagonals: no column index to read",
            precision,
        )
        + signature(
            "spmv",
            pointer("int", "offsets"),
            pointer(precision.value, "values"),
            pointer(precision.value, "x"),
            f"{precision.output}* __restrict__ y",
            "int rows",
            "int cols",
            "int diagonals",
        )
        + f"""  int row = blockIdx.x * {block} + threadIdx.x;
  if (row >= rows) return;
  {precision.output} sum = 0;
  {unroll_line(unroll, "  ")}for (int k = 0; k < diagonals; ++k) {{
    int col = row + offsets[k];
    if (col >= 0 && col < cols) sum += {_term("k * rows + row", load, precision)};
  }}
  y[row] = sum;
}}
"""
    )


def render_bsr(precision: Precision, b: int, threads: int, block: int, load: str, index: str) -> str:
    """`threads` threads per row share its blocks; one index a block: 4 + 4 / b^2 bytes an entry of a full block."""
    rows_per_block = block // threads
    shuffle = f"sum += __shfl_down_sync(0xffffffff, sum, step, {threads});"
    reduce = f"  for (int step = {threads // 2}; step; step /= 2) {shuffle}\n" if threads > 1 else ""
    return (
        header(
            f"bsr b={b} index={index}",
            (f"spmv grid=ceil_div(rows,{rows_per_block}) block={block}",),
            f"dense {b} x {b} blocks: one column index each",
            precision,
        )
        + signature(
            "spmv",
            pointer("int", "block_ptr"),
            pointer(INDEX_TYPES[index], "block_col"),
            pointer(precision.value, "values"),
            pointer(precision.value, "x"),
            f"{precision.output}* __restrict__ y",
            "int rows",
            "int cols",
        )
        + f"""  int row = blockIdx.x * {rows_per_block} + threadIdx.x / {threads}, lane = threadIdx.x % {threads};
  {precision.output} sum = 0;
  if (row < rows) {{
    for (int k = block_ptr[row / {b}] + lane; k < block_ptr[row / {b} + 1]; k += {threads}) {{
      for (int c = 0; c < {b}; ++c) {{
        int col = block_col[k] * {b} + c;
        if (col < cols) sum += {_term(f"(k * {b} + row % {b}) * {b} + c", load, precision)};
      }}
    }}
  }}
{reduce}  if (row < rows && lane == 0) y[row] = sum;
}}
"""
    )


def _term(index: str, hint: str, precision: Precision) -> str:
    return f"{widened(load('values', index, hint), precision)} * {widened('x[col]', precision)}"


def _coo_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return index_fits(parameters, features)


def _sell_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    fill = features.warp_fill if parameters["sigma"] == 1 else features.sorted_warp_fill
    return index_fits(parameters, features) and fill >= 0.4


def _dia_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    return features.diagonal_fill >= 0.1


def _bsr_sensible(parameters: Parameters, features: StructureFeatures) -> bool:
    fill = {2: features.block2_fill, 3: features.block3_fill, 4: features.block4_fill}[int(parameters["b"])]
    blocks_per_row = features.row_len_mean / int(parameters["b"])
    return (
        index_fits(parameters, features) and fill >= 0.4 and int(parameters["threads"]) <= max(1.0, 2 * blocks_per_row)
    )


FAMILIES = (
    Family(
        "coo_segmented",
        "spmv",
        "rows of wildly different length",
        {"block": (128, 256, 512), "load": LOADS, "index": ("i32", "u16")},
        render_coo,
        _coo_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "sell",
        "spmv",
        "rows of similar length, or similar after sorting",
        {
            "c": (32, 64),
            "sigma": (1, 256, 1024),
            "block": (64, 128, 256),
            "unroll": (1, 4),
            "load": ("plain", "ldcs"),
            "index": ("i32", "u16"),
        },
        render_sell,
        _sell_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "dia",
        "spmv",
        "bands and stencils: few, well-filled diagonals",
        {"block": (64, 128, 256), "unroll": (1, 4), "load": ("plain", "ldcs")},
        render_dia,
        _dia_sensible,
        precisions=SPMV_PRECISIONS,
    ),
    Family(
        "bsr",
        "spmv",
        "dense aligned blocks, as of finite elements with several unknowns a node",
        {
            "b": (2, 3, 4),
            "threads": (1, 2, 4, 8),
            "block": (64, 128, 256),
            "load": ("plain", "ldcs"),
            "index": ("i32", "u16"),
        },
        render_bsr,
        _bsr_sensible,
        precisions=SPMV_PRECISIONS,
    ),
)
