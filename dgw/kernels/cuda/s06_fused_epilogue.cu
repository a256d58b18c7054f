// fused-epilogue: the tensor-core kernel, and what usually follows it done while the sums are still in registers:
// activation(alpha A B + beta C + bias) + residual, and, where D has a scale, multiplication by its reciprocal, a zero
// point, and rounding to s8 or e4m3. Each of these is a compile-time choice, so that what is not asked for costs nothing, not even a branch.
//
// After the exchange between lanes a thread owns eight columns of eight rows or more. The scales of its rows and the bias
// of its columns are loaded once, in front.
#include "dgw/epilogue.cuh"
#include "dgw/fragments.cuh"
#include "dgw/tile_order.cuh"

using namespace dgw;

constexpr int WARPS_M = BM / WM;
constexpr int THREADS = 32 * WARPS_M * (BN / WN);
constexpr int STEPS = BK * size_of(TYPE_A) / STEP_BYTES;
constexpr int TILES_M = WM / 16;
constexpr int TILES_N = WN / 8;

using TileA = Tile<TYPE_A, K_MAJOR_A, BM, BK, THREADS, VEC_A, ASYNC>;
using TileB = Tile<TYPE_B, K_MAJOR_B, BN, BK, THREADS, VEC_B, ASYNC>;
constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    fused_epilogue(const char* a, const char* b, const char* c, char* d, const char* bias, const char* residual,
                   const float* scale, int m, int n, int k, i64 lda, i64 ldb, i64 ldc, i64 ldd, i64 ldr, float alpha,
                   float beta, float zero_point) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 shared_base = shared_address(shared);

    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp % WARPS_M * WM, warp_n = warp / WARPS_M * WN;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN);
    const int m0 = tile.m * BM, n0 = tile.n * BN;

    const Lane<TileA> lane_a(lane, warp_m, true);
    const Lane<TileB> lane_b(lane, warp_n, false);
    TileA tile_a;
    TileB tile_b;
    tile_a.begin(a, lda, m0, m, k);
    tile_b.begin(b, ldb, n0, n, k);
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        tile_a.fetch(shared_base + stage * SLOT, lda);
        tile_b.fetch(shared_base + stage * SLOT + TileA::BYTES, ldb);
        commit_copies();
    }
    wait_for_copies<STAGES - 2>();
    __syncthreads();

    u32 slot = shared_base, free_slot = shared_base + (STAGES - 1) * SLOT;
    float sums[TILES_M][TILES_N][4] = {};
    Fragments<TYPE_A, TILES_M, TILES_N> fragments[2];
    fragments[0].load(slot, slot + TileA::BYTES, lane_a, lane_b, 0);

    for (int tiles_left = (k + BK - 1) / BK; tiles_left > 0; --tiles_left) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                wait_for_copies<STAGES - 2>();
                __syncthreads();  // the next tile is complete, and this one's slot has been read
                free_slot = slot;
                slot = slot == shared_base + (STAGES - 1) * SLOT ? shared_base : slot + SLOT;
            }
            fragments[(step + 1) % 2].load(slot, slot + TileA::BYTES, lane_a, lane_b, (step + 1) % STEPS);
            if (step == 0) {
                tile_a.fetch(free_slot, lda);
                tile_b.fetch(free_slot + TileA::BYTES, ldb);
                commit_copies();
            }
            fragments[step % 2].multiply(sums);
        }
    }
    wait_for_copies<0>();

    float steps[TILES_M * 2];  // of a stored value in one unit of the sum: 1 / scale
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {
        const int row = m0 + warp_m + i * 8 + int(lane / 4);
        if constexpr (QUANTISATION == SCALE_PER_ROW) steps[i] = __fdividef(1.0f, row < m ? scale[row] : 1.0f);
        if constexpr (QUANTISATION == SCALE_PER_TENSOR) steps[i] = __fdividef(1.0f, scale[0]);
    }

    // A lane holds two neighbouring columns of each 16 x 8 tile: exchanged with three others, eight of a row.
#pragma unroll
    for (int j = 0; j < TILES_N; j += 4) {
        const int col = n0 + warp_n + j * 8 + int(lane % 4) * 8;
        float bias_values[8] = {};
        if constexpr (USE_BIAS)
            add_row<TYPE_BIAS, 8, VEC_BIAS>(bias_values, bias + col * i64(size_of(TYPE_BIAS)), n - col, 1.0f);
#pragma unroll
        for (int i = 0; i < TILES_M * 2; ++i) {
            const i64 row = m0 + warp_m + i * 8 + int(lane / 4);
            const int available = row < m ? n - col : 0;
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            gather_columns(values, lane);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = fmaf(alpha, values[e], bias_values[e]);
            if constexpr (USE_C)
                add_row<TYPE_C, 8, VEC_C>(values, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = activate<ACTIVATION>(values[e]);
            if constexpr (USE_RESIDUAL)
                add_row<TYPE_RESIDUAL, 8, VEC_RESIDUAL>(
                    values, residual + (row * ldr + col) * size_of(TYPE_RESIDUAL), available, 1.0f);
            if constexpr (QUANTISATION != NO_SCALE) {
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] = fmaf(values[e], steps[i], zero_point);
            }
            store_row<TYPE_D, 8, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), values, available);
        }
    }
}
