// tensor-core: the copy engine fetches whole tiles (TMA), warpgroups multiply them where they lie (wgmma).
//
// One thread asks for a tile of A and one of B at a time, STAGES - 1 ahead; the bytes that arrive are counted at a barrier
// of the slot, at which both warpgroups wait. They compute the upper and the lower half of the BM x BN tile of D. A
// multiplication runs on while the next is prepared: when it is known to have ended, in both warpgroups, its slot is free.
#include "dgw/direct_output.cuh"
#include "dgw/tile_order.cuh"
#include "dgw/wgmma_tile.cuh"

using namespace dgw;

constexpr int THREADS = 256;
constexpr int TILES_M = BM / 128;  // 64 rows each, of a warpgroup
constexpr int TILES_N = BN / 8;

using TileA = WgmmaTile<K_MAJOR_A, BM, 1>;
using TileB = WgmmaTile<K_MAJOR_B, BN, 1>;
constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    tensor_core(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const char* c, char* d,
                const char* bias, const char* residual, const float* scale, int m, int n, int k, i64 ldc, i64 ldd,
                i64 ldr, float alpha, float beta, float zero_point) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const u32 tiles = shared_address(shared), arrived = tiles + STAGES * SLOT;
    const int tiles_k = (k + DEPTH - 1) / DEPTH;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN);
    const int m0 = tile.m * BM, n0 = tile.n * BN;

    const auto fetch = [&](int i) {
        const u32 slot = i % STAGES, to = tiles + slot * SLOT, barrier = arrived + slot * 8;
        arrive_and_expect(barrier, SLOT);
        TileA::load(to, map_a, m0, i * DEPTH, barrier, 0, 0);
        TileB::load(to + TileA::BYTES, map_b, n0, i * DEPTH, barrier, 0, 0);
    };
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < STAGES; ++slot) barrier_init(arrived + slot * 8, 1);
        publish_barriers();
        wait_for_operands();
        for (int i = 0; i < STAGES - 1 && i < tiles_k; ++i) fetch(i);
    }
    __syncthreads();

    const u32 warpgroup = threadIdx.x / 128;
    float sums[TILES_M][TILES_N][4];
    int i = 0;
    do {
        const u32 slot = i % STAGES, from = tiles + slot * SLOT;
        wait(arrived + slot * 8, i / STAGES % 2);
        begin_multiplications();
        multiply_tile<TYPE_A, TileA, TileB, K_MAJOR_A, K_MAJOR_B>(sums, from, from + TileA::BYTES,
                                                                  warpgroup * (TILES_M * 64), i > 0);
        commit_multiplications();
        wait_for_multiplications<1>();
        __syncthreads();  // both warpgroups have done with the tile before this one
        if (threadIdx.x == 0 && i + STAGES - 1 < tiles_k) fetch(i + STAGES - 1);
    } while (++i < tiles_k);
    wait_for_multiplications<0>();
    hold_back(sums);

    const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
    const u32 warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int part = 0; part < TILES_M; ++part)
        store_directly<BN>(epilogue, sums[part], m0 + int(warpgroup * TILES_M + part) * 64 + int(warp) * 16, n0,
                           threadIdx.x % 32);
}
