// format: csr index=i32
// launch: spmm grid=ceil_div(rows,4) block=128
// long rows: 8 lanes share a row for each of 4 dense columns
extern "C" __global__ void spmm(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const float* __restrict__ values,
    const float* __restrict__ B, float* __restrict__ C, int rows,
    int width) {
  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  for (int base = 0; base < width; base += 4) {
    int c = base + lane % 4;
    float sum = 0;
    if (c < width)
      for (int j = row_ptr[row] + lane / 4; j < row_ptr[row + 1]; j += 8) sum += __ldg(values + j) * B[__ldg(col_idx + j) * width + c];
    for (int step = 16; step >= 4; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane < 4 && c < width) C[row * width + c] = sum;
  }
}
