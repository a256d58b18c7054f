// fused-epilogue: the tensor-core kernel, and what usually follows it done while the sums are still in registers:
// activation(alpha A B + beta C + bias) + residual, and, where D has a scale, multiplication by its reciprocal, a zero
// point, and rounding to s8 or e4m3. Each of these is a compile-time choice, so that what is not asked for costs nothing,
// not even a branch.
//
// What is added by rows (C, the residual) waits for the exchange between lanes, after which a thread owns eight columns of
// a row. Without these, values are finished where the multiplication left them, and two or four travel in one word.
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
    fused_epilogue(const char* a, const char* b, const char* c, char* d, const char* bias, const char* residual,
                   const float* scale, int m, int n, int k, i64 lda, i64 ldb, i64 ldc, i64 ldd, i64 ldr, float alpha,
                   float beta, float zero_point) {
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

    const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
    epilogue.store(sums, m0 + warp_m, n0 + warp_n, lane);
}
