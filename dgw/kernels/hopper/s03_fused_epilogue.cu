// fused-epilogue: the warp-specialised kernel whose results are finished while they are still in registers (bias,
// activation, residual, rounding) and leave through shared memory: each warp writes 16 rows by 128 bytes with stmatrix, the
// copy engine stores them as whole lines, and meanwhile the warp finishes the next.
#include "dgw/tile_order.cuh"
#include "dgw/tile_output.cuh"
#include "dgw/wgmma_ring.cuh"

using namespace dgw;

using Output = TileOutput<BN>;

extern "C" __global__ void __launch_bounds__(Ring::THREADS, 1)
    fused_epilogue(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                   const __grid_constant__ TensorMap map_d, const char* c, char* d, const char* bias,
                   const char* residual, const float* scale, int m, int n, int k, i64 ldc, i64 ldd, i64 ldr,
                   float alpha, float beta, float zero_point) {
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

        const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const Output output = {epilogue, map_d, shared_address(shared) + Ring::BYTES + warp * Output::BYTES};
        const BiasOfLane<BN> addends(epilogue, n0, lane);
        ring.settle(sums);
#pragma unroll
        for (int i = 0; i < Ring::TILES_M; ++i) {
            const int row = m0 + ring.first_row() + i * 64 + int(warp % 4) * 16;
            output.store(sums[i], addends, row, n0, lane);
        }
        output.close(lane);
    }
}
