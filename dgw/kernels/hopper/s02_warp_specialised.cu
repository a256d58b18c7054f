// warp-specialised: one warp does nothing but have tiles copied, warpgroups do nothing but multiply.
//
// The warp that copies waits until a slot of the ring is empty, the warpgroups until it is full: no barrier holds all
// threads, and one warpgroup may be ahead of the other by as many tiles as the ring has. A thread that copies needs few
// registers, so the others take most of its share (setmaxnreg), and the 64 x BN sums of a warpgroup fit.
#include "dgw/direct_output.cuh"
#include "dgw/tile_order.cuh"
#include "dgw/wgmma_ring.cuh"

using namespace dgw;

extern "C" __global__ void __launch_bounds__(Ring::THREADS, 1)
    warp_specialised(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const char* c,
                     char* d, const char* bias, const char* residual, const float* scale, int m, int n, int k, i64 ldc,
                     i64 ldd, i64 ldr, float alpha, float beta, float zero_point) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int tiles_k = (k + DEPTH - 1) / DEPTH;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN);
    const int m0 = tile.m * BM, n0 = tile.n * BN;
    Ring ring(shared_address(shared), 0);
    ring.open(map_a, map_b);

    if (ring.is_producer()) {
        ring.shrink();
        if (ring.is_issuer()) {
            wait_for_operands();
            for (int i = 0; i < tiles_k; ++i) ring.fetch(map_a, map_b, m0, n0, i * DEPTH);
        }
    } else {
        ring.grow();
        float sums[Ring::TILES_M][Ring::TILES_N][4];
        ring.multiply(sums, tiles_k);
        ring.settle(sums);

        const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
        const int warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int i = 0; i < Ring::TILES_M; ++i)
            store_directly<BN>(epilogue, sums[i], m0 + ring.first_row() + i * 64 + warp * 16, n0, threadIdx.x % 32);
    }
}
