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

// EXTENT of the operand's m or n by DEPTH of its k. K_MAJOR: EXTENT lines, each along k. Otherwise blocks of 64 m or n:
// DEPTH lines each, one a k. The CTAs of a cluster that need the same tile load one of SHARES parts of it each.
template <bool K_MAJOR, int EXTENT, int SHARES>
struct WgmmaTile {
    static constexpr int BLOCKS = (EXTENT + 63) / 64;
    static constexpr u32 BYTES = K_MAJOR ? EXTENT * 128 : BLOCKS * BLOCK_BYTES;
    static_assert(K_MAJOR ? EXTENT % (8 * SHARES) == 0 : BLOCKS % SHARES == 0, "the parts are whole groups of lines");

    // Part `share` of the tile at m or n = `outer`, k = `k`, to all `peers`, counted at `barrier`.
    static __device__ __forceinline__ void load(u32 tile, const TensorMap& map, int outer, int k, u32 barrier, u32 share,
                                                unsigned short peers) {
        if constexpr (K_MAJOR) {
            const int first = int(share) * (EXTENT / SHARES);
            load_box<(SHARES > 1)>(tile + first * 128, map, outer + first, k, barrier, peers);
        } else {
#pragma unroll
            for (int i = 0; i < BLOCKS / SHARES; ++i) {
                const int block = int(share) * (BLOCKS / SHARES) + i;
                load_box<(SHARES > 1)>(tile + block * BLOCK_BYTES, map, k, outer + block * 64, barrier, peers);
            }
        }
    }

    // What wgmma is told of the tile: address, distance of blocks of 64 (not used along k) and of groups of eight lines,
    // all in 16 bytes, and the swizzle. `line` is a multiple of 64 of m or n.
    static __device__ __forceinline__ u64 descriptor(u32 tile, u32 line) {
        constexpr u64 BLOCK = K_MAJOR ? 1 : BLOCK_BYTES >> 4, GROUP = 1024 >> 4, SWIZZLE_128 = 1;
        const u64 address = ((tile + line * 128) & 0x3ffff) >> 4;
        return address | BLOCK << 16 | GROUP << 32 | SWIZZLE_128 << 62;
    }

    // Between the descriptors of two steps along k.
    static constexpr u64 STEP = (K_MAJOR ? 32 : 16 * 128) >> 4;
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
