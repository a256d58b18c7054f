// The main loop of the tensor-core stages: SLOTS tiles of A and of B in shared memory, filled by copies that run
// SLOTS - 1 tiles ahead, and two sets of fragments, of which one is loaded while the other is multiplied.
#pragma once

#include "dgw/fragments.cuh"

namespace dgw {

template <Type T, class TileA, class TileB, int TILES_M, int TILES_N, int DEPTH, int SLOTS, int QUARTERS>
struct Pipeline {
    static constexpr int STEPS = DEPTH * size_of(T) / STEP_BYTES;
    static constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;

    // The steps of a tile that carry a part of the copies: QUARTERS of them, or as many as there can be. Fragments and
    // copies share one path to shared memory, so that copies in all steps leave no step with more than it has time for.
    // Those of the last step come after the barrier, and with two slots there is no such place.
    static constexpr int WANTED = STEPS * QUARTERS / 4 > 1 ? STEPS * QUARTERS / 4 : 1;
    static constexpr int PARTS = WANTED == STEPS && SLOTS == 2 ? STEPS - 1 : WANTED;
    static constexpr bool IN_LAST = PARTS == STEPS;
    static constexpr bool EARLY = QUARTERS <= 2;  // copies come first in their step, not in its middle
    static constexpr int HALF = TILES_M / 2;

    TileA tile_a;
    TileB tile_b;
    Lane<TileA, TILES_M, STEPS> lane_a;
    Lane<TileB, TILES_N / 2, STEPS> lane_b;
    i64 lda, ldb;
    u32 slot = 0, free_slot = (SLOTS - 1) * SLOT;  // bytes: the tile that is read, and the one that is copied meanwhile
    Fragments<T, TILES_M, TILES_N> fragments[2];

    // `warp_m` and `warp_n`: the first row and column of the warp in the tile of D.
    __device__ __forceinline__ Pipeline(u32 shared, i64 lda, i64 ldb, u32 warp_m, u32 warp_n)
        : tile_a(shared),
          tile_b(shared + TileA::BYTES),
          lane_a(shared, threadIdx.x % 32, warp_m, true),
          lane_b(shared + TileA::BYTES, threadIdx.x % 32, warp_n, false),
          lda(lda),
          ldb(ldb) {}

    __device__ __forceinline__ bool inside() const { return tile_a.inside() && tile_b.inside(); }

    // Starts the copies of one k tile, of which `k_left` exist in the matrix, and closes their group. Where nothing
    // exists, nothing is copied, but the group is closed.
    __device__ __forceinline__ void fetch(u32 to, int k_left) {
        if (k_left >= DEPTH && inside())
            copy<true>(to, k_left);
        else if (k_left > 0)
            copy<false>(to, k_left);
        commit_copies();
    }

    // After SLOTS - 1 fetches: the first fragments.
    __device__ __forceinline__ void start() {
        await_tile();
        load_fragments(0);
        fragments[1] = {};
    }

    // Multiplies one k tile, shifted by half a step: the half step that the tile before left comes first, and this tile
    // leaves one to the next. So the fragments that are loaded last have time to arrive, where a loop over whole tiles
    // would begin with a wait for them. Meanwhile the tile SLOTS - 1 further on is fetched: WHOLE says that it lies
    // inside the matrix, otherwise `k_left` of it exist. The `last` tile of all has no successor to load fragments of.
    template <bool WHOLE>
    __device__ __forceinline__ void advance(float (&sums)[TILES_M][TILES_N][4], int k_left = DEPTH, bool last = false) {
        fragments[1].template multiply<HALF>(sums);
        steps<WHOLE, 0>(sums, k_left);
        const u32 filled = free_slot;
        if (WHOLE || !last) {
            await_tile<WHOLE && IN_LAST>();  // and all have read this one, whose slot is free now
            free_slot = slot;
            slot = slot == (SLOTS - 1) * SLOT ? 0 : slot + SLOT;
            load_fragments(0);
        }
        fragments[1].template multiply<0, HALF>(sums);
        if constexpr (WHOLE && IN_LAST) copy_part<STEPS - 1>(filled, k_left);
    }

    // After the last k tile of a tile of D: the half step that is left.
    __device__ __forceinline__ void finish(float (&sums)[TILES_M][TILES_N][4]) {
        fragments[1].template multiply<HALF>(sums);
        fragments[1] = {};
    }

private:
    // All steps of a tile but the last.
    template <bool WHOLE, int STEP>
    __device__ __forceinline__ void steps(float (&sums)[TILES_M][TILES_N][4], int k_left) {
        load_fragments(STEP + 1);
        if constexpr (!WHOLE && STEP == 0) {
            if (k_left > 0) copy<false>(free_slot, k_left);
            commit_copies();
        }
        if constexpr (WHOLE && STEP < PARTS && EARLY) copy_part<STEP>(free_slot, k_left);
        fragments[STEP % 2].template multiply<0, HALF>(sums);
        if constexpr (WHOLE && STEP < PARTS && !EARLY) copy_part<STEP>(free_slot, k_left);
        fragments[STEP % 2].template multiply<HALF>(sums);
        if constexpr (STEP < STEPS - 2) steps<WHOLE, STEP + 1>(sums, k_left);
    }

    template <int PART>
    __device__ __forceinline__ void copy_part(u32 to, int k_left) {
        copy<true, PART, PARTS>(to, k_left);
        if constexpr (PART == PARTS - 1) commit_copies();
    }

    template <bool WHOLE, int PART = 0, int OF = 1>
    __device__ __forceinline__ void copy(u32 to, int k_left) {
        tile_a.template fetch<WHOLE, PART, OF>(to, lda, k_left);
        tile_b.template fetch<WHOLE, PART, OF>(to, ldb, k_left);
    }

    // The next tile is complete when each thread has waited for its own copies and all have met. As a rule the group of
    // the tile SLOTS - 1 further on is closed by then, unless part of it is YET_TO_COME.
    template <bool YET_TO_COME = false>
    __device__ __forceinline__ void await_tile() {
        wait_for_copies<SLOTS - (YET_TO_COME ? 3 : 2)>();
        __syncthreads();
    }

    __device__ __forceinline__ void load_fragments(int step) {
        fragments[step % 2].load(slot, lane_a, lane_b, step);
    }
};

}  // namespace dgw
