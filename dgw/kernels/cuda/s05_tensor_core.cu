// tensor-core: the double-buffered kernel with the multiplications done by mma.sync. A warp computes WM x WN of D in
// steps of 16 x 8 sums and 32 bytes of depth (16 elements of f16 or bf16, 8 of tf32).
//
// The instruction wants each operand spread over the lanes in a fixed pattern, which ldmatrix delivers from rows of 16
// bytes in shared memory; where an operand is stored across that pattern, ldmatrix transposes on the way. The fragments
// of the next step are loaded while this step's are multiplied, across the border of tiles too: the barrier that
// publishes the next tile lies before the last step of this one. Copies are spread over the steps. Blocks take the tiles
// of D in groups of GROUP_M rows.
#include "dgw/output.cuh"
#include "dgw/pipeline.cuh"
#include "dgw/tile_order.cuh"

using namespace dgw;

constexpr int WARPS_M = BM / WM;
constexpr int THREADS = 32 * WARPS_M * (BN / WN);
constexpr int TILES_M = WM / 16;
constexpr int TILES_N = WN / 8;

using TileA = Tile<TYPE_A, K_MAJOR_A, BM, BK, THREADS, VEC_A, ASYNC>;
using TileB = Tile<TYPE_B, K_MAJOR_B, BN, BK, THREADS, VEC_B, ASYNC>;
using MainLoop = Pipeline<TYPE_A, TileA, TileB, TILES_M, TILES_N, BK, STAGES, SPREAD>;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    tensor_core(const char* a, const char* b, const char* c, char* d, int m, int n, int k, i64 lda, i64 ldb, i64 ldc,
                i64 ldd, float alpha, float beta) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp % WARPS_M * WM, warp_n = warp / WARPS_M * WN;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN);
    const int m0 = tile.m * BM, n0 = tile.n * BN;

    MainLoop loop(shared_address(shared), lda, ldb, warp_m, warp_n);
    loop.tile_a.begin(a, lda, m0, m);
    loop.tile_b.begin(b, ldb, n0, n);
    int k_left = k;  // of what is not fetched yet
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage, k_left -= BK) loop.fetch(stage * MainLoop::SLOT, k_left);
    loop.start();

    // As long as the tile that is fetched lies inside the matrix, the loop asks for nothing but its own end.
    float sums[TILES_M][TILES_N][4] = {};
    const int whole = loop.inside() && k_left > 0 ? k_left / BK : 0;
    for (int i = 0; i < whole; ++i) loop.advance<true>(sums);
    k_left -= whole * BK;
    for (int left = (k + BK - 1) / BK - whole; left > 0; --left, k_left -= BK)
        loop.advance<false>(sums, k_left, left == 1);
    loop.finish(sums);

    // A lane holds two neighbouring columns of each 16 x 8 tile: exchanged with three others, eight of a row. Pairs of
    // 16-bit elements are rounded first and take half the exchanges, unless C is to be added.
    constexpr bool ROUND_FIRST = size_of(TYPE_D) == 2 && !USE_C;
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {
        const i64 row = m0 + warp_m + i * 8 + int(lane / 4);
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            const int col = n0 + warp_n + j * 8 + int(lane % 4) * 8;
            const int available = row < m ? n - col : 0;
            char* target = d + (row * ldd + col) * size_of(TYPE_D);
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = alpha * sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            if constexpr (ROUND_FIRST) {
                u32 words[4];
                round_piece<TYPE_D, 8>(words, values);
                exchange(words, lane);
                store_rounded<TYPE_D, VEC_D>(target, words, available);
            } else {
                gather_columns(values, lane);
                if constexpr (USE_C)
                    add_row<TYPE_C, 8, VEC_C>(values, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
                store_row<TYPE_D, 8, VEC_D>(target, values, available);
            }
        }
    }
}
