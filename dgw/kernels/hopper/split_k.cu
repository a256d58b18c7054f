// split_k: what persistent does where there are fewer tiles of D than SMs. The CTAs of a cluster compute the same tile, each
// over its part of k. Then each adds up a part of the columns: it reads the others' sums from their shared memory, always
// in the order of k, so that the result does not depend on who was first.
#include "dgw/direct_output.cuh"
#include "dgw/staged_output.cuh"
#include "dgw/tile_order.cuh"
#include "dgw/wgmma_ring.cuh"

using namespace dgw;

constexpr int PART_N = Ring::TILES_N / SPLIT;  // eights of columns that one CTA adds up
constexpr u32 LANES = Ring::CONSUMERS * 128;
using Output = StagedOutput<PART_N * 8>;

// Where a thread's four sums of 16 rows by 8 columns lie: neighbouring threads' side by side.
__device__ __forceinline__ u32 place_of(u32 tiles, int i, int j) {
    return tiles + (u32(i * Ring::TILES_N + j) * LANES + threadIdx.x) * 16;
}

__device__ __forceinline__ void add_remote(float (&sums)[4], u32 address) {
    float other[4];
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(other[0]), "=f"(other[1]), "=f"(other[2]), "=f"(other[3])
                 : "r"(address)
                 : "memory");
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e] += other[e];
}

extern "C" __global__ void __launch_bounds__(Ring::THREADS, 1)
    split_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
            const __grid_constant__ TensorMap map_d, const char* c, char* d, const char* bias, const char* residual,
            const float* scale, int m, int n, int k, i64 ldc, i64 ldd, i64 ldr, float alpha, float beta,
            float zero_point) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN, tiles_k = (k + DEPTH - 1) / DEPTH;
    const int rank = int(cluster_rank());
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x / SPLIT, tiles_m, tiles_n);
    const int begin = tiles_k * rank / SPLIT, end = tiles_k * (rank + 1) / SPLIT;
    Ring ring(shared_offset(shared), 0);
    ring.open(map_a, map_b);

    if (ring.is_producer()) {
        ring.shrink();
        if (ring.is_issuer())
            for (int i = begin; i < end; ++i) ring.fetch(map_a, map_b, tile.m * BM, tile.n * BN, i * DEPTH);
        __syncwarp();
        meet_cluster();
        meet_cluster();
    } else {
        ring.grow();
        float sums[Ring::TILES_M][Ring::TILES_N][4];
        ring.multiply(sums, end - begin);
        meet(1, LANES);  // all have read the tiles, whose place the sums take
#pragma unroll
        for (int i = 0; i < Ring::TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < Ring::TILES_N; ++j) {
                u32 words[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) words[e] = __float_as_uint(sums[i][j][e]);
                store_shared<16>(place_of(ring.tiles, i, j), words);
            }
        meet_cluster();

        const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const Output output = {epilogue, map_d, shared_offset(shared) + Ring::BYTES + warp * Output::BYTES};
        const int col = tile.n * BN + rank * PART_N * 8;
#pragma unroll
        for (int i = 0; i < Ring::TILES_M; ++i) {
            float part[PART_N][4] = {};
#pragma unroll
            for (int j = 0; j < PART_N; ++j)
#pragma unroll
                for (u32 from = 0; from < SPLIT; ++from)
                    add_remote(part[j], address_in(place_of(ring.tiles, i, rank * PART_N + j), from));
            const int row = tile.m * BM + ring.first_row() + i * 64 + int(warp % 4) * 16;
            if constexpr (STAGED)
                output.store(part, row, col, lane);
            else
                store_directly<PART_N * 8>(epilogue, part, row, col, lane);
        }
        if (STAGED && lane == 0) wait_for_sources<0>();
        meet_cluster();  // nobody ends while others read its sums
    }
}
