// tensor-core: the double-buffered kernel with the multiplications done by mma.sync. A warp computes WM x WN of D in
// steps of 16 x 8 sums and 32 bytes of depth (16 elements of f16 or bf16, 8 of tf32).
//
// The instruction wants each operand spread over the lanes in a fixed pattern, which ldmatrix delivers from rows of 16
// bytes in shared memory; where an operand is stored across that pattern, ldmatrix transposes on the way. The fragments
// of the next step are loaded while this step's are multiplied, across the border of tiles too: the barrier that
// publishes the next tile lies before the last step of this one. Blocks take the tiles of D in groups of GROUP_M rows.
#include "dgw/fragments.cuh"
#include "dgw/output.cuh"
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
    tensor_core(const char* a, const char* b, const char* c, char* d, int m, int n, int k, i64 lda, i64 ldb, i64 ldc,
                i64 ldd, float alpha, float beta) {
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

    // A lane holds two neighbouring columns of each 16 x 8 tile: exchanged with three others, eight of a row.
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {
        const i64 row = m0 + warp_m + i * 8 + int(lane / 4);
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = alpha * sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            gather_columns(values, lane);
            const int col = n0 + warp_n + j * 8 + int(lane % 4) * 8;
            const int available = row < m ? n - col : 0;
            if constexpr (USE_C)
                add_row<TYPE_C, 8, VEC_C>(values, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
            store_row<TYPE_D, 8, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), values, available);
        }
    }
}
