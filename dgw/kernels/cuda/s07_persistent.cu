// persistent: the fused-epilogue kernel with as many CTAs as the device holds at once. Each computes one tile of D after
// the other, every gridDim.x-th in the grouped order.
//
// The copies run ahead of the multiplications by STAGES - 1 tiles along k and do not stop where a tile of D ends: while
// its sums are finished and stored, the first k tiles of the next one are already under way, so that only the first tile
// of a CTA waits for an empty pipeline. After the last tile the copies fill zeros, without access to memory.
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
    persistent(const char* a, const char* b, const char* c, char* d, const char* bias, const char* residual,
               const float* scale, int m, int n, int k, i64 lda, i64 ldb, i64 ldc, i64 ldd, i64 ldr, float alpha,
               float beta, float zero_point) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 shared_base = shared_address(shared);

    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp % WARPS_M * WM, warp_n = warp / WARPS_M * WN;
    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN, tiles_k = (k + BK - 1) / BK;
    const u32 tiles = u32(tiles_m) * u32(tiles_n);

    const Lane<TileA> lane_a(lane, warp_m, true);
    const Lane<TileB> lane_b(lane, warp_n, false);

    // What is fetched: k tiles left of the tile of D that the copies have reached.
    TileA tile_a;
    TileB tile_b;
    u32 fetched_tile = blockIdx.x;
    int fetch_left = 0;
    const auto fetch_next = [&](u32 target) {
        if (fetch_left == 0) {
            if (fetched_tile < tiles) {
                const TilePlace ahead = grouped_tile<GROUP_M>(fetched_tile, tiles_m, tiles_n);
                tile_a.begin(a, lda, ahead.m * BM, m, k);
                tile_b.begin(b, ldb, ahead.n * BN, n, k);
            } else {
                tile_a.k_left = tile_b.k_left = 0;
            }
            fetched_tile = fetched_tile < tiles ? fetched_tile + gridDim.x : tiles;
            fetch_left = tiles_k;
        }
        --fetch_left;
        tile_a.fetch(target, lda);
        tile_b.fetch(target + TileA::BYTES, ldb);
        commit_copies();
    };

#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) fetch_next(shared_base + stage * SLOT);
    wait_for_copies<STAGES - 2>();
    __syncthreads();

    u32 slot = shared_base, free_slot = shared_base + (STAGES - 1) * SLOT;
    Fragments<TYPE_A, TILES_M, TILES_N> fragments[2];
    fragments[0].load(slot, slot + TileA::BYTES, lane_a, lane_b, 0);

    for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        float sums[TILES_M][TILES_N][4] = {};
        for (int tiles_left = tiles_k; tiles_left > 0; --tiles_left) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step == STEPS - 1) {
                    wait_for_copies<STAGES - 2>();
                    __syncthreads();  // the next tile is complete, and this one's slot has been read
                    free_slot = slot;
                    slot = slot == shared_base + (STAGES - 1) * SLOT ? shared_base : slot + SLOT;
                }
                fragments[(step + 1) % 2].load(slot, slot + TileA::BYTES, lane_a, lane_b, (step + 1) % STEPS);
                if (step == 0) fetch_next(free_slot);
                fragments[step % 2].multiply(sums);
            }
        }

        const TilePlace place = grouped_tile<GROUP_M>(index, tiles_m, tiles_n);
        float steps[TILES_M * 2];  // of a stored value in one unit of the sum: 1 / scale
#pragma unroll
        for (int i = 0; i < TILES_M * 2; ++i) {
            const int row = place.m * BM + warp_m + i * 8 + int(lane / 4);
            if constexpr (QUANTISATION == SCALE_PER_ROW) steps[i] = __fdividef(1.0f, row < m ? scale[row] : 1.0f);
            if constexpr (QUANTISATION == SCALE_PER_TENSOR) steps[i] = __fdividef(1.0f, scale[0]);
        }

        // A lane holds two neighbouring columns of each 16 x 8 tile: exchanged with three others, eight of a row.
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            const int col = place.n * BN + warp_n + j * 8 + int(lane % 4) * 8;
            float bias_values[8] = {};
            if constexpr (USE_BIAS)
                add_row<TYPE_BIAS, 8, VEC_BIAS>(bias_values, bias + col * i64(size_of(TYPE_BIAS)), n - col, 1.0f);
#pragma unroll
            for (int i = 0; i < TILES_M * 2; ++i) {
                const i64 row = place.m * BM + warp_m + i * 8 + int(lane / 4);
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
    wait_for_copies<0>();
}
