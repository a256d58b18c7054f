// persistent: the fused-epilogue kernel with as many CTAs as there are SMs. Each computes one tile of D after the other, in
// an order that keeps rows of A and columns of B in L2.
//
// The producer does not stop where a tile ends: while the consumers finish and store one, the ring fills with the next. So
// the position in the ring, slot and parity, is carried from tile to tile. The CTAs of a cluster take neighbouring tiles:
// those in one row of tiles need the same A, those in one column the same B, and each loads a part for all of them.
//
// With COPY_AHEAD the other warps of the producer copy operands that the copy engine cannot reach, and the ring fills from
// the copies (copy_ahead.cuh).
#include "dgw/copy_ahead.cuh"
#include "dgw/tile_order.cuh"
#include "dgw/tile_output.cuh"
#include "dgw/wgmma_ring.cuh"

using namespace dgw;

constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
using Output = TileOutput<BN>;
static_assert(!COPY_AHEAD || Ring::CONSUMERS * 4 * CopyAhead::FIRST_BYTES <= Ring::BYTES, "what is copied first fits the ring");

extern "C" __global__ void __launch_bounds__(Ring::THREADS, 1)
    persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_d, const char* c, char* d, const char* bias, const char* residual,
               const float* scale, int m, int n, int k, i64 ldc, i64 ldd, i64 ldr, float alpha, float beta,
               float zero_point, const char* from_a, const char* from_b, char* to_a, char* to_b, i64 lda, i64 ldb,
               u32* progress) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int clusters_m = (m + BM * CLUSTER_M - 1) / (BM * CLUSTER_M);
    const int clusters_n = (n + BN * CLUSTER_N - 1) / (BN * CLUSTER_N);
    const int tiles_k = (k + DEPTH - 1) / DEPTH;
    const u32 tiles = u32(clusters_m) * u32(clusters_n), rank = CLUSTER > 1 ? cluster_rank() : 0;
    const auto place = [&](u32 index) {
        const TilePlace tile = grouped_tile<(GROUP_M + CLUSTER_M - 1) / CLUSTER_M>(index, clusters_m, clusters_n);
        return TilePlace{(tile.m * CLUSTER_M + int(rank % CLUSTER_M)) * BM,
                         (tile.n * CLUSTER_N + int(rank / CLUSTER_M)) * BN};
    };
    Ring ring(shared_address(shared), rank);
    const u32 staging = shared_address(shared) + Ring::BYTES;
    const CopyAhead copies = {CopyAhead::PartsA::of(from_a, to_a, m, k, lda),
                              CopyAhead::PartsB::of(from_b, to_b, n, k, ldb), {progress}, (k + CHUNK - 1) / CHUNK,
                              ring.barriers + STAGES * 16};
    if (COPY_AHEAD) copies.begin(ring.tiles, Ring::CONSUMERS * 4);
    if (COPY_AHEAD && threadIdx.x == 0) copies.open();
    ring.open(map_a, map_b);

    if (ring.is_producer()) {
        const u32 warp = threadIdx.x / 32 - Ring::CONSUMERS * 4;
        ring.shrink();
        if (ring.is_issuer()) {
            wait_for_operands();
            int there = 0;  // chunks of k
            const u32 start = COPY_AHEAD ? copies.progress.start() : 0;
            for (u32 index = blockIdx.x / CLUSTER; index < tiles; index += gridDim.x / CLUSTER) {
                const TilePlace tile = place(index);
                for (int i = 0; i < tiles_k; ++i) {
                    if (COPY_AHEAD && i * DEPTH >= there * CHUNK) {
                        there = copies.next(there);
                        copies.progress.wait_for_all(there - 1, start);
                    }
                    ring.fetch(map_a, map_b, tile.m, tile.n, i * DEPTH);
                }
                if (COPY_AHEAD && index < gridDim.x / CLUSTER) copies.progress.leave(there, start);
            }
            ring.drain();
        } else if (COPY_AHEAD && warp == 1) {
            copies.tell(Ring::CONSUMERS * 4);
        } else if (COPY_AHEAD && warp > 1) {
            copies.copy(staging, warp - 2, Ring::CONSUMERS * 4);
        }
    } else {
        if (COPY_AHEAD) copies.go_on(ring.tiles, Ring::CONSUMERS * 4);
        ring.grow();
        const Epilogue epilogue = {c, bias, residual, scale, d, m, n, ldc, ldd, ldr, alpha, beta, zero_point};
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const Output output = {epilogue, map_d, staging + warp * Output::BYTES};
        // In turn, one warpgroup multiplies while the other finishes a tile of D.
        const u32 turn = PINGPONG ? threadIdx.x / 128 : 0, step = gridDim.x / CLUSTER;
        if (turn > 0) ring.skip(tiles_k);
        for (u32 index = blockIdx.x / CLUSTER + turn * step; index < tiles; index += step * (PINGPONG ? 2 : 1)) {
            float sums[Ring::TILES_M][Ring::TILES_N][4];
            if (PINGPONG && index >= step) Ring::take_turn(turn);
            ring.multiply(sums, tiles_k);
            if (PINGPONG && index + step < tiles) Ring::pass_turn(turn);
            const TilePlace tile = place(index);  // the divisions are done while the last tiles are multiplied
            const BiasOfLane<BN> addends(epilogue, tile.n, lane);
            ring.settle(sums);
            if (COPY_AHEAD) copies.wait_for_end();  // what is staged takes the place of what was copied
#pragma unroll
            for (int i = 0; i < Ring::TILES_M; ++i) {
                const int row = tile.m + (ring.first_row() + i * 64 + int(warp % 4) * 16);
                output.store(sums[i], addends, row, tile.n, lane);
            }
            if constexpr (PINGPONG) ring.skip(tiles_k);
        }
        output.close(lane);
    }
}
