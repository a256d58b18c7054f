// A tile of A or B in shared memory as the copy engine writes it and wgmma reads it: lines of 128 bytes, of which the
// 16-byte pieces are permuted by the line's number in its group of eight (the 128-byte swizzle of both).
#pragma once

#include "dgw/dependent_launch.cuh"
#include "dgw/tma.cuh"
#include "dgw/wgmma.cuh"

namespace dgw {

constexpr int DEPTH = 64;           // k elements of a tile: 128 bytes of a 16-bit type
constexpr int BLOCK_BYTES = 8192;   // of 64 lines
constexpr int STEPS = DEPTH / 16;   // multiplications along k

using LinesA = Lines<PHASES_A, SHIFT_A, STEP_A>;
using LinesB = Lines<PHASES_B, SHIFT_B, STEP_B>;

// EXTENT of the operand's m or n by DEPTH of its k. K_MAJOR: EXTENT lines, each along k. Otherwise blocks of 64 m or n:
// DEPTH lines each, one a k. The CTAs of a cluster that need the same tile load one of SHARES parts of it each.
//
// Lines of one phase (tma.cuh) come one below the other, phase after phase: the lines of a tile, or of a block, are not in
// the order of the matrix. Along k that is no matter where A and B have the same order. SPREAD: of blocks, each phase begins a
// line further behind the one before than it would (wgmma_fragments.cuh).
template <bool K_MAJOR, int EXTENT, int SHARES, class Lines, bool SPREAD = false>
struct WgmmaTile {
    static constexpr int PHASES = Lines::PHASES;
    static constexpr int BLOCKS = (EXTENT + 63) / 64;
    static constexpr u32 PHASE = DEPTH / PHASES * 128 + (SPREAD ? 128 : 0);  // bytes from one to the next in a block
    static constexpr u32 BLOCK = PHASES * PHASE;
    static constexpr u32 BYTES = K_MAJOR ? EXTENT * 128 : BLOCKS * BLOCK;
    static constexpr u32 LOADED = K_MAJOR ? EXTENT * 128 : BLOCKS * BLOCK_BYTES;  // of these
    static_assert(BYTES % 1024 == 0, "what lies behind begins where the swizzle does");
    static_assert(PHASES > 1 ? PHASES % SHARES == 0 : K_MAJOR || BLOCKS % SHARES == 0, "the parts are equal");
    static_assert(!K_MAJOR || EXTENT % (8 * (PHASES > 1 ? PHASES : SHARES)) == 0, "the parts are whole groups of lines");

    // Part `share` of the tile at m or n = `outer`, k = `k`, to all `peers`, counted at `barrier`.
    static __device__ __forceinline__ void load(u32 tile, const TensorMaps<PHASES>& maps, int outer, int k, u32 barrier,
                                                u32 share, unsigned short peers) {
        if constexpr (PHASES > 1) {
#pragma unroll 1  // the warp that copies has few registers
            for (int i = 0; i < PHASES / SHARES; ++i)
                load_phase(tile, maps, int(share) * (PHASES / SHARES) + i, outer, k, barrier, peers);
        } else if constexpr (K_MAJOR) {
            const int first = int(share) * (EXTENT / SHARES);
            load_box<(SHARES > 1)>(tile + first * 128, maps.of[0], outer + first, k + Lines::shift(0), barrier, peers);
        } else {
            load_blocks<BLOCKS / SHARES>(tile, maps.of[0], int(share) * (BLOCKS / SHARES), outer + Lines::shift(0), k,
                                         barrier, peers);
        }
    }

    // Lines of one phase that follow one another are so far apart in m or n.
    static constexpr int APART = K_MAJOR ? PHASES : 1;

    // What line `line` of the tile is of the operand's m or n, counted from `outer`.
    static __device__ __forceinline__ int place(int line) {
        return APART == 1 ? line : line % (EXTENT / PHASES) * PHASES + line / (EXTENT / PHASES);
    }

    // What wgmma is told of the tile: address, distance of blocks of 64 (not used along k) and of groups of eight lines,
    // all in 16 bytes, and the swizzle. `line` is a multiple of 64 of m or n.
    static __device__ __forceinline__ u64 descriptor(u32 tile, u32 line) {
        constexpr u64 NEXT = K_MAJOR ? 1 : BLOCK_BYTES >> 4, GROUP = 1024 >> 4, SWIZZLE_128 = 1;
        const u64 address = ((tile + line * 128) & 0x3ffff) >> 4;
        return address | NEXT << 16 | GROUP << 32 | SWIZZLE_128 << 62;
    }

    // Between the descriptors of two steps along k.
    static constexpr u64 STEP = (K_MAJOR ? 32 : 16 * 128) >> 4;

private:
    static __device__ __forceinline__ void load_phase(u32 tile, const TensorMaps<PHASES>& maps, int phase, int outer, int k,
                                                      u32 barrier, unsigned short peers) {
        const int shift = Lines::shift(phase);
        if constexpr (K_MAJOR)
            load_box<(SHARES > 1)>(tile + phase * (EXTENT / PHASES) * 128, maps.of[phase], outer / PHASES, k + shift,
                                   barrier, peers);
        else
            load_blocks<BLOCKS>(tile + phase * PHASE, maps.of[phase], 0, outer + shift, k / PHASES, barrier, peers);
    }

    // Lines from `line` on of COUNT blocks of 64 m or n.
    template <int COUNT>
    static __device__ __forceinline__ void load_blocks(u32 tile, const TensorMap& map, int first, int outer, int line,
                                                       u32 barrier, unsigned short peers) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            load_box<(SHARES > 1)>(tile + (first + i) * BLOCK, map, line, outer + (first + i) * 64, barrier, peers);
    }
};

// The thread that has tiles copied, before the first: where COPIED, the launch before makes a copy of an operand
// (alignment.py) and may not have ended.
__device__ __forceinline__ void wait_for_operands() {
    if constexpr (COPIED) wait_for_launch_before();
}

// Nothing that reads the sums is moved up to where they are still being added to.
template <int TILES_M, int TILES_N>
__device__ __forceinline__ void hold_back(float (&sums)[TILES_M][TILES_N][4]) {
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[i][j][e]));
}

// sums (+)= A * B over one tile: TILES_M times 64 rows from line `row` of A on, all columns of B.
template <Type T, class TileA, class TileB, bool K_MAJOR_OF_A, bool K_MAJOR_OF_B, int TILES_M, int TILES_N>
__device__ __forceinline__ void multiply_tile(float (&sums)[TILES_M][TILES_N][4], u32 a, u32 b, u32 row, bool accumulate) {
    const u64 from_b = TileB::descriptor(b, 0);
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
            multiply_warpgroup<T, K_MAJOR_OF_A, K_MAJOR_OF_B>(sums[i], TileA::descriptor(a, row + i * 64) + step * TileA::STEP,
                                                              from_b + step * TileB::STEP, accumulate || step > 0);
}

}  // namespace dgw
