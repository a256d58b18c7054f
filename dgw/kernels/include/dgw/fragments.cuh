// How the lanes of a warp read their shares of A and B from swizzled tiles, in the pattern that mma.sync wants.
#pragma once

#include "dgw/mma.cuh"
#include "dgw/tile.cuh"

namespace dgw {

constexpr int STEP_BYTES = 32;  // depth of one mma: 16 elements of f16 or bf16, 8 of tf32

// Where a lane reads in a tile: SQUARES squares of 16 rows of A or 16 columns of B in each of STEPS steps. Where k runs
// along the rows, steps differ by XOR and squares by a constant; elsewhere it is the reverse.
template <class Tile, int SQUARES, int STEPS>
struct Lane {
    static constexpr u32 DISTANCE = Tile::ALONG_K ? STEP_BYTES : 16 * Tile::SIZE;  // bytes along the row
    static constexpr u32 IN_LINE = 128 / DISTANCE;                                 // the XOR stays in a line
    static constexpr u32 ALONG = Tile::ALONG_K ? STEPS : SQUARES;
    static constexpr u32 PLACES = ALONG < IN_LINE ? ALONG : IN_LINE;
    u32 places[PLACES];

    // `shared`: the tile in slot 0; `first`: the warp's first row or column. A square is 16 of them by 32 bytes of k: four
    // 8 x 16-byte matrices. Of these the instruction takes rows first for A and k first for B; where the operand is stored
    // across, the square lies on its side.
    __device__ __forceinline__ Lane(u32 shared, u32 lane, u32 first, bool is_a) {
        const bool rows_first = is_a == Tile::ALONG_K;
        const u32 row_low = rows_first ? lane % 16 : lane / 16 * 8 + lane % 8;
        const u32 half = rows_first ? lane / 16 : lane / 8 % 2;
        u32 row, spot;
        if constexpr (Tile::ALONG_K) {
            row = first + row_low;
            spot = half * 16 ^ Tile::twist(row_low);
        } else if constexpr (!Tile::SINGLE) {
            row = row_low;
            spot = (first * Tile::SIZE + half * 16) ^ Tile::twist(row_low);
        } else {
            row = lane % 4;
            spot = (first + lane / 4) * Tile::SIZE ^ Tile::twist(lane % 4);
        }
#pragma unroll
        for (u32 i = 0; i < PLACES; ++i) places[i] = shared + row * Tile::ROW + (spot ^ i * DISTANCE);
    }

    // Reads square number `square` at step `step` of the tile in `slot`: rows or columns 0-7 and 8-15, each at the low
    // and the high half of the depth.
    __device__ __forceinline__ void read(u32& low0, u32& low8, u32& high0, u32& high8, u32 slot, u32 square, u32 step,
                                         bool is_a) const {
        const u32 along = Tile::ALONG_K ? step : square;
        const u32 down = Tile::ALONG_K ? square * 16 : step * (STEP_BYTES / Tile::SIZE);
        const u32 place = places[along % IN_LINE], offset = along / IN_LINE * 128 + down * Tile::ROW;
        const u32 at = slot + place + offset;
        if constexpr (Tile::SINGLE) {  // 32-bit elements that run along m or n: ldmatrix would tear them apart
            const u32 other = slot + (place ^ 32) + offset;
            load_shared_word(low0, at);
            load_shared_word(low8, other);
            load_shared_word(high0, at + 4 * Tile::ROW);
            load_shared_word(high8, other + 4 * Tile::ROW);
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

    // In the order in which they are multiplied: the first rows of A, all of B, the other rows.
    template <class LaneA, class LaneB>
    __device__ __forceinline__ void load(u32 slot, const LaneA& lane_a, const LaneB& lane_b, u32 step) {
        lane_a.read(a[0][0], a[0][1], a[0][2], a[0][3], slot, 0, step, true);
#pragma unroll
        for (u32 j = 0; j < TILES_N; j += 2)
            lane_b.read(b[j][0], b[j + 1][0], b[j][1], b[j + 1][1], slot, j / 2, step, false);
#pragma unroll
        for (u32 i = 1; i < TILES_M; ++i) lane_a.read(a[i][0], a[i][1], a[i][2], a[i][3], slot, i, step, true);
    }

    // Multiplies the 16-row pieces FROM .. TO - 1 of A; TO = TILES_M comes last.
    template <int FROM = 0, int TO = TILES_M>
    __device__ __forceinline__ void multiply(float (&sums)[TILES_M][TILES_N][4]) {
        if constexpr (size_of(T) == 4) {
#pragma unroll
            for (int i = FROM * 4; i < TO * 4; ++i) a[i / 4][i % 4] = round_to_tf32(a[i / 4][i % 4]);
#pragma unroll
            for (int i = 0; FROM == 0 && i < TILES_N * 2; ++i) b[i / 2][i % 2] = round_to_tf32(b[i / 2][i % 2]);
        }
#pragma unroll
        for (int i = FROM; i < TO; ++i)
#pragma unroll
            for (int there = 0; there < TILES_N; ++there) {
                const int j = i % 2 == 0 ? there : TILES_N - 1 - there;  // there and back: the turn reads no new B
                multiply_add<T>(sums[i][j], a[i], b[j]);
            }
    }
};

}  // namespace dgw
