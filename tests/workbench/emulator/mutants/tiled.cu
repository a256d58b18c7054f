// C (M x N, f32) = A (M x K, f16) B (K x N, f16): 32 x 32 tiles through shared memory, 256 threads with 4 rows each.
#include <cuda_fp16.h>

constexpr int T = 32;

extern "C" __global__ void __launch_bounds__(256) tiled(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ half a[T][T];
    __shared__ half b[T][T];
    const int x = threadIdx.x % T, y = threadIdx.x / T;
    const int row0 = blockIdx.y * T, column = blockIdx.x * T + x;
    float acc[4];
    for (int i = 0; i < 4; ++i) acc[i] = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        for (int i = 0; i < 4; ++i) {
            int r = y + 8 * i;
            a[r][x] = row0 + r < M && k0 + x < K ? A[(row0 + r) * K + k0 + x] : __float2half(0.0f);
            b[r][x] = k0 + r < K && column < N ? B[(k0 + r) * N + column] : __float2half(0.0f);
        }
        __syncthreads();  // tiles are complete
        for (int k = 0; k < T; ++k)
            for (int i = 0; i < 4; ++i) acc[i] += __half2float(a[y + 8 * i][k]) * __half2float(b[k][x]);
        __syncthreads();  // tiles are free
    }
    for (int i = 0; i < 4; ++i)
        if (row0 + y + 8 * i < M && column < N) C[(row0 + y + 8 * i) * N + column] = acc[i];
}
