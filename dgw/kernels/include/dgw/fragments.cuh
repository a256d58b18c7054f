// How the lanes of a warp read their shares of A and B from swizzled tiles, in the pattern that mma.sync wants.
#pragma once

#include "dgw/mma.cuh"
#include "dgw/tile.cuh"

namespace dgw {

constexpr int STEP_BYTES = 32;  // depth of one mma: 16 elements of f16 or bf16, 8 of tf32

// Where a lane reads in a tile: `spot` is the place at step 0 of the warp's first 16 rows of A or columns of B; further
// ones, and further steps where k runs along the rows, change bits that nothing else uses, by XOR.
template <class Tile>
struct Lane {
    u32 row, spot;

    // A square is 16 rows or columns by 32 bytes of k: four 8 x 16-byte matrices. Of these the instruction takes rows
    // first for A and k first for B; where the operand is stored across, the square lies on its side.
    __device__ __forceinline__ Lane(u32 lane, u32 first, bool is_a) {
        const bool rows_first = is_a == Tile::ALONG_K;
        const u32 row_low = rows_first ? lane % 16 : lane / 16 * 8 + lane % 8;
        const u32 half = rows_first ? lane / 16 : lane / 8 % 2;
        if constexpr (Tile::ALONG_K) {
            row = (first + row_low) * Tile::ROW;
            spot = half * 16 ^ Tile::twist(row_low);
        } else if constexpr (!Tile::SINGLE) {
            row = row_low * Tile::ROW;
            spot = (first * Tile::SIZE + half * 16) ^ Tile::twist(row_low);
        } else {
            row = lane % 4 * Tile::ROW;
            spot = (first + lane / 4) * Tile::SIZE ^ Tile::twist(lane % 4);
        }
    }

    // Reads square number `square` at step `step` of the tile at `tile`: rows or columns 0-7 and 8-15, each at the low
    // and the high half of the depth.
    __device__ __forceinline__ void read(u32& low0, u32& low8, u32& high0, u32& high8, u32 tile, u32 square, u32 step,
                                         bool is_a) const {
        const u32 along_k = row + square * 16 * Tile::ROW + (spot ^ step * STEP_BYTES);
        const u32 across = row + step * (STEP_BYTES / Tile::SIZE) * Tile::ROW + (spot ^ square * 16 * Tile::SIZE);
        const u32 at = tile + (Tile::ALONG_K ? along_k : across);
        if constexpr (Tile::SINGLE) {  // 32-bit elements that run along m or n: ldmatrix would tear them apart
            load_shared_word(low0, at);
            load_shared_word(low8, at ^ 32);
            load_shared_word(high0, at + 4 * Tile::ROW);
            load_shared_word(high8, (at ^ 32) + 4 * Tile::ROW);
        } else if (is_a) {
            load_matrices<!Tile::ALONG_K>(low0, low8, high0, high8, at);
        } else {
            load_matrices<!Tile::ALONG_K>(low0, high0, low8, high8, at);
        }
    }
};

// What a warp multiplies in one step: TILES_M x 16 rows of A and TILES_N x 8 columns of B.
template <Type T, int TILES_M, int TILES_N>
struct Fragments {
    u32 a[TILES_M][4];
    u32 b[TILES_N][2];

    template <class TileA, class TileB>
    __device__ __forceinline__ void load(u32 tile_a, u32 tile_b, const Lane<TileA>& lane_a, const Lane<TileB>& lane_b,
                                         u32 step) {
#pragma unroll
        for (u32 i = 0; i < TILES_M; ++i) lane_a.read(a[i][0], a[i][1], a[i][2], a[i][3], tile_a, i, step, true);
#pragma unroll
        for (u32 j = 0; j < TILES_N; j += 2)
            lane_b.read(b[j][0], b[j + 1][0], b[j][1], b[j + 1][1], tile_b, j / 2, step, false);
    }

    __device__ __forceinline__ void multiply(float (&sums)[TILES_M][TILES_N][4]) {
        if constexpr (size_of(T) == 4) {
#pragma unroll
            for (int i = 0; i < TILES_M * 4; ++i) a[i / 4][i % 4] = round_to_tf32(a[i / 4][i % 4]);
#pragma unroll
            for (int i = 0; i < TILES_N * 2; ++i) b[i / 2][i % 2] = round_to_tf32(b[i / 2][i % 2]);
        }
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) multiply_add<T>(sums[i][j], a[i], b[j]);
    }
};

}  // namespace dgw
