// A good f32 kernel without tensor cores (layout nn): 128 x 128 tiles of D, 8 x 8 sums a thread, and A transposed on its way
// into shared memory, so that both operands are read from it in 16-byte pieces along a row. Two blocks fit an SM: one loads
// while the other multiplies.
//
// A warp loads and stores 8 k x 4 rows at once, and an XOR spreads the k over the banks. Defects: PLAIN_TRANSPOSE, a warp
// stores 32 k of one row, which all lie in one bank; LOADS_DOWN, a warp loads 32 rows of one k.
#include "dgw/output.cuh"

using namespace dgw;

constexpr int T = 128, BK = 32, THREADS = 256;

__device__ __forceinline__ int place(int k, int row) {
#if defined(PLAIN_TRANSPOSE)
    return k * T + row;
#else
    return k * T + (row ^ k % 8 * 4);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    transposed(const float* a, const float* b, float* d, int m, int n, int k, i64 lda, i64 ldb, i64 ldd, float alpha) {
    __shared__ __align__(128) float tile_a[BK * T];
    __shared__ __align__(128) float tile_b[BK * T];
    const int tiles_n = (n + T - 1) / T, m0 = blockIdx.x / tiles_n * T, n0 = blockIdx.x % tiles_n * T;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if defined(PLAIN_TRANSPOSE)
    const int row_a = warp, col_a = lane;
    constexpr int DOWN = 8, ALONG = 0;
#elif defined(LOADS_DOWN)
    const int row_a = threadIdx.x % T, col_a = threadIdx.x / T;
    constexpr int DOWN = 0, ALONG = 2;
#else
    const int row_a = warp * 4 + lane / 8, col_a = lane % 8;
    constexpr int DOWN = 32, ALONG = 8;
#endif
    const int row_b = threadIdx.x / 32, col_b = threadIdx.x % 32 * 4;

    const auto at_row = [&](int i) { return row_a + (ALONG ? i % 4 : i) * DOWN; };
    const auto at_col = [&](int i) { return col_a + (DOWN ? i / 4 : i) * ALONG; };

    float sums[8][8] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        float from_a[16];
        float4 from_b[4];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int row = m0 + at_row(i), col = k0 + at_col(i);
            from_a[i] = row < m && col < k ? a[row * lda + col] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = k0 + row_b + i * 8, col = n0 + col_b;
            const float4 zeros = {0, 0, 0, 0};
            from_b[i] = row < k && col < n ? *reinterpret_cast<const float4*>(b + row * ldb + col) : zeros;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) tile_a[place(at_col(i), at_row(i))] = from_a[i];
#pragma unroll
        for (int i = 0; i < 4; ++i) *reinterpret_cast<float4*>(&tile_b[(row_b + i * 8) * T + col_b]) = from_b[i];
        __syncthreads();
#pragma unroll 8
        for (int at = 0; at < BK; ++at) {
            float left[8], right[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {  // four here and four 64 further on, so that lanes lie side by side
                *reinterpret_cast<float4*>(left + half * 4) =
                    *reinterpret_cast<const float4*>(&tile_a[place(at, half * 64 + y * 4)]);
                *reinterpret_cast<float4*>(right + half * 4) =
                    *reinterpret_cast<const float4*>(&tile_b[at * T + half * 64 + x * 4]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = m0 + i / 4 * 64 + y * 4 + i % 4, col = n0 + half * 64 + x * 4;
            float values[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) values[j] = alpha * sums[i][half * 4 + j];
            if (row < m) store_row<F32, 4, 4>(reinterpret_cast<char*>(d + row * ldd + col), values, n - col);
        }
}
