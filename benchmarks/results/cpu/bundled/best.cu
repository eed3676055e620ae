// format: csr index=u16
// launch: spmv grid=ceil_div(rows,256) block=256
// uneven short rows: coalesced products staged in shared memory
extern "C" __global__ void spmv(const int* __restrict__ row_ptr, const unsigned short* __restrict__ col_idx, const float* __restrict__ values,
    const float* __restrict__ x, float* __restrict__ y, int rows) {
  __shared__ float part[1024];
  int first = blockIdx.x * 256, row = first + threadIdx.x;
  int last = row_ptr[min(first + 256, rows)];
  int begin = row < rows ? row_ptr[row] : last, end = row < rows ? row_ptr[row + 1] : last;
  float sum = 0;
  for (int base = row_ptr[first]; base < last; base += 1024) {
    for (int j = base + threadIdx.x; j < min(base + 1024, last); j += 256) part[j - base] = __ldcs(values + j) * x[__ldcs(col_idx + j)];
    __syncthreads();
    for (int j = max(begin, base); j < min(end, base + 1024); ++j) sum += part[j - base];
    __syncthreads();
  }
  if (row < rows) y[row] = sum;
}
