// A of a tile in registers, where it lies along k and B across, or the reverse, and the copy engine reads the one across in
// phases: its lines come in another order of k than the other's elements, and here the two meet.
#pragma once

#include "dgw/mma.cuh"
#include "dgw/wgmma_tile.cuh"

namespace dgw {

// TILES_M times 64 rows of A, as multiply_warpgroup takes them. A group of eight lines across k is one phase: of its k, every
// eighth.
template <class TileA, bool K_MAJOR, int TILES_M>
struct FragmentsA {
    static constexpr int PHASES = 8;  // of the operand across k: with fewer, groups of lines would differ from each other

    u32 of[TILES_M][STEPS][4];

    // From line `first` of the tile on. The warp has 16 rows of each 64.
    __device__ __forceinline__ void load(u32 tile, u32 first, u32 warp, u32 lane) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            if constexpr (K_MAJOR)
                load_along(of[i], tile + (first + i * 64 + warp * 16) * 128, lane);
            else
                load_across(of[i], tile + (first / 64 + i) * TileA::BLOCK, warp * 2, lane);
        }
    }

private:
    // A along k, in the order of B's lines: step s takes every eighth k from 2s on, then from 2s + 1 on. Of these a lane has
    // the third part's two neighbours: over all steps 16 that follow one another, which are two loads.
    static __device__ __forceinline__ void load_along(u32 (&a)[STEPS][4], u32 rows, u32 lane) {
        const u32 row = lane / 4, part = lane % 4 * 2;
        const u32 at = rows + row * 128 + (part ^ row) * 16;
#pragma unroll
        for (int lower = 0; lower < 2; ++lower) {
            u32 low[4], high[4];
            load_shared<16>(low, at + lower * 1024);
            load_shared<16>(high, (at ^ 16) + lower * 1024);
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                a[step][lower] = __byte_perm(low[step], high[step], 0x5410);
                a[step][lower + 2] = __byte_perm(low[step], high[step], 0x7632);
            }
        }
    }

    // A across k, in the order of k: each eight are a line of every phase. The copy engine permutes the parts of a line by
    // its address, and a phase begins a line further behind the one before than its lines take, so the eight are at eight places.
    static __device__ __forceinline__ void load_across(u32 (&a)[STEPS][4], u32 block, u32 part, u32 lane) {
        const u32 phase = lane % 8, own = part + lane / 8 % 2;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const u32 line = step * 2 + lane / 16;
            load_matrices<true>(a[step][0], a[step][1], a[step][2], a[step][3],
                                block + phase * TileA::PHASE + line * 128 + (own ^ (phase + line) % 8) * 16);
        }
    }
};

}  // namespace dgw
