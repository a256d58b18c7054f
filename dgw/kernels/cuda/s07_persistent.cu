// persistent: the fused-epilogue kernel with as many CTAs as the device holds at once. Each computes one tile of D after
// the other, every gridDim.x-th in the grouped order.
//
// The copies run ahead of the multiplications by STAGES - 1 tiles along k and do not stop where a tile of D ends: while
// its sums are finished and stored, the first k tiles of the next one are already under way, so that only the first tile
// of a CTA waits for an empty pipeline. After the last tile there is nothing left to copy.
#include "dgw/epilogue.cuh"
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
    persistent(const char* a, const char* b, const char* c, char* d, const char* bias, const char* residual,
               const float* scale, int m, int n, int k, i64 lda, i64 ldb, i64 ldc, i64 ldd, i64 ldr, float alpha,
               float beta, float zero_point) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 warp = threadIdx.x / 32;
    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN, tiles_k = (k + BK - 1) / BK;
    const u32 tiles = u32(tiles_m) * u32(tiles_n);
    const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};

    // Where the copies are: `k_left` of their tile of D are not fetched yet, and `ahead` comes after it.
    MainLoop loop(shared_address(shared), lda, ldb, warp % WARPS_M * WM, warp / WARPS_M * WN);
    u32 ahead = blockIdx.x;
    int k_left = 0;
    const auto turn_to_next = [&] {
        if (k_left > 0 || ahead >= tiles) return;
        const TilePlace tile = grouped_tile<GROUP_M>(ahead, tiles_m, tiles_n);
        loop.tile_a.begin(a, lda, tile.m * BM, m);
        loop.tile_b.begin(b, ldb, tile.n * BN, n);
        ahead += gridDim.x;
        k_left = k;
    };
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage, k_left -= BK) {
        turn_to_next();
        loop.fetch(stage * MainLoop::SLOT, k_left);
    }
    loop.start();

    for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        float sums[TILES_M][TILES_N][4] = {};
        for (int tiles_left = tiles_k; tiles_left > 0;) {
            turn_to_next();
            // The k tiles that are to be fetched and lie inside the matrix, at most those that are to be multiplied.
            int whole = loop.inside() && k_left > 0 ? k_left / BK : 0;
            whole = whole < tiles_left ? whole : tiles_left;
            for (int i = 0; i < whole; ++i) loop.advance<true>(sums);
            if (whole == 0) {  // the one to be fetched crosses an edge, or there is none
                loop.advance<false>(sums, k_left, tiles_left == 1 && index + gridDim.x >= tiles);
                whole = 1;
            }
            tiles_left -= whole;
            k_left -= whole * BK;
        }
        loop.finish(sums);
        const TilePlace tile = grouped_tile<GROUP_M>(index, tiles_m, tiles_n);
        const u32 thread = fresh_thread_index();  // so that what depends on it is not kept in registers all the time
        const int row = tile.m * BM + thread / 32 % WARPS_M * WM, col = tile.n * BN + thread / 32 / WARPS_M * WN;
        epilogue.store(sums, row, col, thread % 32);
    }
}
