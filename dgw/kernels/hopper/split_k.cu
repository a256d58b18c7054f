// split_k: what persistent does where there are fewer tiles of D than SMs. The CTAs of a cluster compute the same tile, each
// over its part of k. Then each adds up a part of the columns: the others send it their sums of these, straight from
// registers into its shared memory. They are added in the order of k, so that the result does not depend on who was first.
#include "dgw/tile_order.cuh"
#include "dgw/tile_output.cuh"
#include "dgw/wgmma_ring.cuh"

using namespace dgw;

constexpr int PART_N = Ring::TILES_N / SPLIT;  // eights of columns that one CTA adds up
constexpr u32 LANES = Ring::CONSUMERS * 128;
constexpr u32 PART_BYTES = Ring::TILES_M * PART_N * LANES * 16;  // that one CTA sends to another
using Output = TileOutput<PART_N * 8>;

// What a CTA receives, where its tiles of operands were: of each other one the sums of a thread side by side with its neighbours', four at a time.
struct Inbox {
    u32 sums, barrier;

    __device__ __forceinline__ u32 place(int from, int i, int j) const {
        return sums + (u32((from * Ring::TILES_M + i) * PART_N + j) * LANES + threadIdx.x) * 16;
    }
};

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
    Ring ring(shared_address(shared), 0);
    const Inbox inbox = {ring.tiles, ring.barriers + STAGES * 16};
    if (threadIdx.x == 0) {
        barrier_init(inbox.barrier, 1);
        arrive_and_expect(inbox.barrier, (SPLIT - 1) * PART_BYTES);
    }
    ring.open(map_a, map_b);

    if (ring.is_producer()) {
        ring.shrink();
        if (ring.is_issuer()) {
            wait_for_operands();
            for (int i = begin; i < end; ++i) ring.fetch(map_a, map_b, tile.m * BM, tile.n * BN, i * DEPTH);
        }
        __syncwarp();
        arrive_in_cluster();
        wait_for_cluster();
    } else {
        ring.grow();
        float sums[Ring::TILES_M][Ring::TILES_N][4];
        ring.multiply(sums, end - begin);
        ring.settle(sums);
        arrive_in_cluster();
        wait_for_cluster();  // all have read their tiles of operands, whose place the sums take
#pragma unroll
        for (int to = 0; to < SPLIT; ++to) {
            const int slot = rank < to ? rank : rank - 1;  // of the others that send there
            const u32 barrier = address_in(inbox.barrier, to);
            if (to != rank)
#pragma unroll
                for (int i = 0; i < Ring::TILES_M; ++i)
#pragma unroll
                    for (int j = 0; j < PART_N; ++j)
                        send(address_in(inbox.place(slot, i, j), to), barrier, sums[i][to * PART_N + j]);
        }
        wait(inbox.barrier, 0);

        const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const Output output = {epilogue, map_d, shared_address(shared) + Ring::BYTES + warp * Output::BYTES};
        const int col = tile.n * BN + rank * PART_N * 8;
        const BiasOfLane<PART_N * 8> addends(epilogue, col, lane);
#pragma unroll
        for (int i = 0; i < Ring::TILES_M; ++i) {
            float part[PART_N][4] = {};
#pragma unroll
            for (int j = 0; j < PART_N; ++j)
#pragma unroll
                for (int from = 0; from < SPLIT; ++from) {
                    float found[4];
                    if (from == rank) {
#pragma unroll
                        for (int e = 0; e < 4; ++e) found[e] = sums[i][from * PART_N + j][e];
                    } else {
                        u32 words[4];
                        load_shared<16>(words, inbox.place(from < rank ? from : from - 1, i, j));
#pragma unroll
                        for (int e = 0; e < 4; ++e) found[e] = __uint_as_float(words[e]);
                    }
#pragma unroll
                    for (int e = 0; e < 4; ++e) part[j][e] += found[e];
                }
            const int row = tile.m * BM + ring.first_row() + i * 64 + int(warp % 4) * 16;
            output.store(part, addends, row, col, lane);
        }
        output.close(lane);
    }
}
