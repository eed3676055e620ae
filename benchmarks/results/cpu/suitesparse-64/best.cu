// format: csr index=i32
// launch: spmm grid=ceil_div(rows,8) block=256
// long rows: 4 lanes share a row for each of 8 dense columns
extern "C" __global__ void spmm(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const float* __restrict__ values,
    const float* __restrict__ B, float* __restrict__ C, int rows,
    int width) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  for (int base = 0; base < width; base += 8) {
    int c = base + lane % 8;
    float sum = 0;
    if (c < width)
      for (int j = row_ptr[row] + lane / 8; j < row_ptr[row + 1]; j += 4) sum += __ldg(values + j) * B[__ldg(col_idx + j) * width + c];
    for (int step = 16; step >= 8; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane < 8 && c < width) C[row * width + c] = sum;
  }
}
