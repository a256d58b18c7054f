// A good kernel for one row of A (f16, layout nt): a warp for each element of D, which reads its row of B in pieces of 16
// bytes a lane, UNROLL of them at a time, and A from the caches.
//
// Each defect is one define.
#include "dgw/output.cuh"

using namespace dgw;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    gemv(const char* a, const char* b, char* d, int n, int k, i64 ldb, float alpha) {
#if defined(UNUSED_SHARED)
    extern __shared__ __align__(128) unsigned char memory[];
    if (k < 0) memory[threadIdx.x] = 0;
#endif
#if defined(LANE_FOR_A_ROW)
    const int column = blockIdx.x * THREADS + threadIdx.x;  // each lane in a row of its own, two bytes at a time
    if (column >= n) return;
    const char* row = b + column * ldb * 2;
    float sum[1] = {};
#pragma unroll 8
    for (int at = 0; at < k; ++at) {
        u32 x, y;
        load_global<2>(&x, a + at * 2, true);
        load_global<2>(&y, row + at * 2, true);
        sum[0] = fmaf(to_f32<F16>(x, 0), to_f32<F16>(y, 0), sum[0]);
    }
    sum[0] *= alpha;
    store_row<F16, 1, 1>(d + column * 2, sum, 1);
#else
    const int column = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (column >= n) return;
    const char* row = b + column * ldb * 2;
    float sum[1] = {};
#if defined(HELD_REGISTERS)
    u32 held[HELD_REGISTERS];  // values that are kept over the loop for nothing
#pragma unroll
    for (int i = 0; i < HELD_REGISTERS; ++i) load_global<4>(held + i, a + i * 2 % k * 2, true);
#endif
    for (int at = lane * 8; at < k; at += UNROLL * 256) {
        u32 x[UNROLL][4], y[UNROLL][4];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            load_global<16>(y[i], row + (at + i * 256) * 2, at + i * 256 < k);
            load_global<16>(x[i], a + (at + i * 256) * 2, at + i * 256 < k);
        }
#pragma unroll
        for (int i = 0; i < UNROLL * 8; ++i)
            sum[0] = fmaf(to_f32<F16>(x[i / 8][i % 8 / 2], i % 2), to_f32<F16>(y[i / 8][i % 8 / 2], i % 2), sum[0]);
    }
#if defined(HELD_REGISTERS)
#pragma unroll
    for (int i = 0; i < HELD_REGISTERS; ++i) sum[0] = fmaf(0.0f, to_f32<F16>(held[i], 0), sum[0]);
#endif
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum[0] += __shfl_xor_sync(0xffffffff, sum[0], distance);
    sum[0] *= alpha;
    if (lane == 0) store_row<F16, 1, 1>(d + column * 2, sum, 1);
#endif
}
