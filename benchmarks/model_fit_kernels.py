"""SpMV kernels that no family renders: they test whether the modelled time holds for code that it was not fitted on.

Each computes the product in its own way: an atomic an entry, a persistent grid, a binary search for the row of each
chunk, two rows a thread, a reduction in shared memory, a row split over a block's warps, pairs of entries a load.
"""

_CSR = (
    "const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const float* __restrict__ values,\n"
    "    const float* __restrict__ x, float* __restrict__ y"
)
_CLEAR = """extern "C" __global__ void clear(float* y, int rows) {
  int r = blockIdx.x * 256 + threadIdx.x;
  if (r < rows) y[r] = 0.f;
}
"""


def outside_kernels() -> dict[str, str]:
    """Name -> source of the spmv programs that are not of a family."""
    found = {
        "atomic_entry": """// format: coo index=i32
// launch: clear grid=ceil_div(rows,256) block=256
// launch: spmv grid=ceil_div(nnz,256) block=256
"""
        + _CLEAR
        + """extern "C" __global__ void spmv(const int* row_idx, const int* col_idx, const float* values,
    const float* x, float* y, int nnz) {
  int j = blockIdx.x * 256 + threadIdx.x;
  if (j < nnz) atomicAdd(y + row_idx[j], values[j] * x[col_idx[j]]);
}
""",
        "persistent_warps": f"""// format: csr index=i32
// launch: spmv grid=264 block=512
extern "C" __global__ void spmv({_CSR}, int rows) {{
  int warp = (blockIdx.x * 512 + threadIdx.x) / 32, lane = threadIdx.x % 32;
  for (int r = warp; r < rows; r += 264 * 16) {{
    float s = 0.f;
    for (int j = row_ptr[r] + lane; j < row_ptr[r + 1]; j += 32) s += values[j] * x[col_idx[j]];
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (lane == 0) y[r] = s;
  }}
}}
""",
        "chunk_search": f"""// format: csr index=i32
// launch: clear grid=ceil_div(rows,256) block=256
// launch: spmv grid=ceil_div(nnz,1024) block=128
{_CLEAR}extern "C" __global__ void spmv({_CSR}, int rows, int nnz) {{
  int first = (blockIdx.x * 128 + threadIdx.x) * 8, last = min(first + 8, nnz);
  if (first >= nnz) return;
  int low = 0, high = rows;
  while (high - low > 1) {{
    int middle = (low + high) / 2;
    if (row_ptr[middle] <= first) low = middle; else high = middle;
  }}
  int r = low, end = row_ptr[r + 1];
  float s = 0.f;
  for (int j = first; j < last; ++j) {{
    while (j >= end) {{
      if (s != 0.f) atomicAdd(y + r, s);
      s = 0.f;
      end = row_ptr[++r + 1];
    }}
    s += values[j] * x[col_idx[j]];
  }}
  atomicAdd(y + r, s);
}}
""",
        "two_rows": f"""// format: csr index=i32
// launch: spmv grid=ceil_div(rows,256) block=128
extern "C" __global__ void spmv({_CSR}, int rows) {{
  int r = blockIdx.x * 256 + threadIdx.x, q = r + 128;
  int a = r < rows ? row_ptr[r] : 0, a1 = r < rows ? row_ptr[r + 1] : 0;
  int b = q < rows ? row_ptr[q] : 0, b1 = q < rows ? row_ptr[q + 1] : 0;
  float s = 0.f, t = 0.f;
  for (; a < a1 || b < b1; ++a, ++b) {{
    if (a < a1) s += values[a] * x[col_idx[a]];
    if (b < b1) t += values[b] * x[col_idx[b]];
  }}
  if (r < rows) y[r] = s;
  if (q < rows) y[q] = t;
}}
""",
        "shared_reduction": f"""// format: csr index=i32
// launch: spmv grid=ceil_div(rows,8) block=128
extern "C" __global__ void spmv({_CSR}, int rows) {{
  __shared__ float part[128];
  int lane = threadIdx.x % 16, r = blockIdx.x * 8 + threadIdx.x / 16;
  float s = 0.f;
  if (r < rows)
    for (int j = row_ptr[r] + lane; j < row_ptr[r + 1]; j += 16) s += values[j] * x[col_idx[j]];
  part[threadIdx.x] = s;
  for (int d = 8; d; d >>= 1) {{
    __syncthreads();
    if (lane < d) part[threadIdx.x] += part[threadIdx.x + d];
  }}
  if (lane == 0 && r < rows) y[r] = part[threadIdx.x];
}}
""",
        "split_rows": f"""// format: csr index=i32
// launch: clear grid=ceil_div(rows,256) block=256
// launch: spmv grid=(ceil_div(rows,8),2) block=256
{_CLEAR}extern "C" __global__ void spmv({_CSR}, int rows) {{
  int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  int begin = row_ptr[r], end = row_ptr[r + 1], half = (end - begin + 1) / 2;
  int from = begin + blockIdx.y * half, to = min(from + half, end);
  float s = 0.f;
  for (int j = from + lane; j < to; j += 32) s += values[j] * x[col_idx[j]];
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (lane == 0 && from < to) atomicAdd(y + r, s);
}}
""",
        "pairs": f"""// format: csr index=i32
// launch: spmv grid=ceil_div(rows,32) block=128
extern "C" __global__ void spmv({_CSR}, int rows) {{
  int r = blockIdx.x * 32 + threadIdx.x / 4, lane = threadIdx.x % 4;
  float s = 0.f;
  if (r < rows) {{
    int j = row_ptr[r], end = row_ptr[r + 1];
    if ((j & 1) && j < end) {{
      if (lane == 0) s = values[j] * x[col_idx[j]];
      ++j;
    }}
    for (j += 2 * lane; j + 1 < end; j += 8) {{
      float2 v = *reinterpret_cast<const float2*>(values + j);
      int2 c = *reinterpret_cast<const int2*>(col_idx + j);
      s += v.x * x[c.x] + v.y * x[c.y];
    }}
    if (j + 1 == end) s += values[j] * x[col_idx[j]];
  }}
  s += __shfl_down_sync(0xffffffffu, s, 2, 4);
  s += __shfl_down_sync(0xffffffffu, s, 1, 4);
  if (r < rows && lane == 0) y[r] = s;
}}
""",
    }
    return {f"outside {name}": source for name, source in found.items()}
