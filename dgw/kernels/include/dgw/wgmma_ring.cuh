// A ring of shared-memory tiles between a warp that has them copied and warpgroups that multiply them.
#pragma once

#include "dgw/wgmma_tile.cuh"

namespace dgw {

// The first CONSUMERS warpgroups multiply; one more holds the warp that copies. TEAM of them share a BM x BN tile of D, 64
// or 128 rows each; with PINGPONG two compute whole tiles in turn. `full` barriers count the bytes of a tile of A and one of
// B; `empty` barriers count the warps that have read them, of all CTAs of the cluster that get a part of their tiles from
// here.
struct Ring {
    static constexpr int CONSUMERS = !PINGPONG && BM == 64 ? 1 : 2;
    static constexpr int TEAM = PINGPONG ? 1 : CONSUMERS;
    static constexpr int THREADS = 128 * (CONSUMERS + 1);
    static constexpr int TILES_M = BM / 64 / TEAM;
    static constexpr int TILES_N = BN / 8;
    using TileA = WgmmaTile<K_MAJOR_A, BM, CLUSTER_N>;
    using TileB = WgmmaTile<K_MAJOR_B, BN, CLUSTER_M>;
    static constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;
    static constexpr u32 BYTES = SLOT * STAGES;  // the barriers lie behind, after the staging of D
    static constexpr int READERS = CLUSTER_M + CLUSTER_N - 1;  // CTAs that read what this one copies

    u32 tiles, barriers, rank;
    RingPosition<STAGES> position;

    __device__ __forceinline__ Ring(u32 shared, u32 rank) : tiles(shared), barriers(shared + BYTES + STAGING_BYTES), rank(rank) {}

    __device__ __forceinline__ u32 full(u32 slot) const { return barriers + slot * 16; }
    __device__ __forceinline__ u32 empty(u32 slot) const { return barriers + slot * 16 + 8; }

    // All threads: barriers are ready, in all CTAs of the cluster.
    __device__ __forceinline__ void open(const TensorMap& map_a, const TensorMap& map_b) const {
        if (threadIdx.x == 0) {
            prefetch(map_a);
            prefetch(map_b);
            for (u32 slot = 0; slot < STAGES; ++slot) {
                barrier_init(full(slot), 1);
                barrier_init(empty(slot), READERS * TEAM * 4);
            }
            publish_barriers();
        }
        __syncthreads();
        if constexpr (READERS > 1) {
            arrive_in_cluster();
            wait_for_cluster();
        }
    }

    static __device__ __forceinline__ bool is_producer() { return threadIdx.x >= CONSUMERS * 128; }
    static __device__ __forceinline__ bool is_issuer() { return threadIdx.x / 32 == CONSUMERS * 4 && elected(); }
    static __device__ __forceinline__ int first_row() { return PINGPONG ? 0 : int(threadIdx.x / 128) * (TILES_M * 64); }

    // Registers move from the producer to the consumers, which hold the sums.
    static __device__ __forceinline__ void shrink() {
        if constexpr (SETMAXNREG && CONSUMERS > 1) give_registers<(COPY_AHEAD ? 56 : 24)>();
    }
    static __device__ __forceinline__ void grow() {
        if constexpr (SETMAXNREG && CONSUMERS > 1) take_registers<(COPY_AHEAD ? 224 : 240)>();
    }

    // The issuer: waits until a slot is free everywhere and has the next tiles copied to it.
    __device__ __forceinline__ void fetch(const TensorMap& map_a, const TensorMap& map_b, int row, int col, int k) {
        const u32 row_rank = rank % CLUSTER_M, col_rank = rank / CLUSTER_M;
        const u32 tile_a = tiles + position.slot * SLOT, tile_b = tile_a + TileA::BYTES;
        wait(empty(position.slot), position.parity ^ 1);
        arrive_and_expect(full(position.slot), SLOT);
        TileA::load(tile_a, map_a, row, k, full(position.slot), col_rank, same_row(row_rank));
        TileB::load(tile_b, map_b, col, k, full(position.slot), row_rank, same_column(col_rank));
        position.advance();
    }

    // The issuer, last: nobody arrives here after this CTA has ended.
    __device__ __forceinline__ void drain() {
        if constexpr (READERS > 1)
            for (int slot = 0; slot < STAGES; ++slot, position.advance())
                wait(empty(position.slot), position.parity ^ 1);
    }

    // A consumer warpgroup: sums = A * B over `count` >= 1 tiles along k, which are there once they have settled. A slot is
    // given back when the multiplication after it has been started, so that the tensor cores always have one to do.
    __device__ __forceinline__ void multiply(float (&sums)[TILES_M][TILES_N][4], int count) {
        int i = 0;
        do {
            const u32 tile_a = tiles + position.slot * SLOT;
            wait(full(position.slot), position.parity);
            begin_multiplications();
            multiply_tile<TYPE_A, TileA, TileB, K_MAJOR_A, K_MAJOR_B>(sums, tile_a, tile_a + TileA::BYTES,
                                                                      u32(first_row()), i > 0);
            commit_multiplications();
            wait_for_multiplications<1>();
            if (i > 0) release(begun);  // the tiles before have been multiplied
            begun = position.slot;
            position.advance();
        } while (++i < count);
    }

    // Waits for the last of the multiplications.
    __device__ __forceinline__ void settle(float (&sums)[TILES_M][TILES_N][4]) {
        wait_for_multiplications<0>();
        release(begun);
        hold_back(sums);
    }

    // Leaves `count` tiles along k to another warpgroup.
    __device__ __forceinline__ void skip(u32 count) { position.skip(count); }

    // With PINGPONG, warpgroup `turn`: waits until the other has begun all it multiplies of the tile before. Earlier it must
    // not look at the ring, whose barriers tell only even rounds from odd ones.
    static __device__ __forceinline__ void take_turn(u32 turn) { meet(2 + turn, 256); }

    // Warpgroup `turn` has begun all it multiplies of its tile.
    static __device__ __forceinline__ void pass_turn(u32 turn) {
        asm volatile("bar.arrive %0, 256;" ::"r"(3 - turn) : "memory");
    }

private:
    u32 begun;  // slot of the tiles that are being multiplied

    // One lane for each CTA that has part of this slot's tiles copied here tells it that the warp has read them.
    __device__ __forceinline__ void release(u32 slot) const {
        const u32 lane = threadIdx.x % 32;
        if constexpr (READERS == 1) {
            if (lane == 0) arrive(empty(slot));
        } else if (lane < READERS) {
            const u32 row_rank = rank % CLUSTER_M, col_rank = rank / CLUSTER_M;
            const u32 other = lane < CLUSTER_M ? lane : lane - CLUSTER_M + u32(lane - CLUSTER_M >= col_rank);
            const u32 to = lane < CLUSTER_M ? lane + col_rank * CLUSTER_M : row_rank + other * CLUSTER_M;
            arrive_at(empty(slot), to);
        }
    }

    // Sets of CTAs of the cluster: those whose tiles are in one row of tiles of D, or in one column.
    static __device__ __forceinline__ unsigned short same_row(u32 row_rank) {
        u32 set = 0;
#pragma unroll
        for (u32 i = 0; i < CLUSTER_N; ++i) set |= 1u << (row_rank + i * CLUSTER_M);
        return set;
    }
    static __device__ __forceinline__ unsigned short same_column(u32 col_rank) {
        return ((1u << CLUSTER_M) - 1) << (col_rank * CLUSTER_M);
    }
};

}  // namespace dgw
