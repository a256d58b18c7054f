// Finished sums on their way to D: each warp finishes a piece of 16 rows and writes it to shared memory of its own.
#pragma once

#include "dgw/epilogue.cuh"

namespace dgw {

// Four 8x8 matrices of 16-bit elements, the reverse of load_matrices.
__device__ __forceinline__ void store_matrices(u32 address, u32 m0, u32 m1, u32 m2, u32 m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m0), "r"(m1),
                 "r"(m2), "r"(m3)
                 : "memory");
}

// What a lane adds to the sums of its columns: of every eight, two neighbours. With KEEP_BIAS it is loaded while tiles are
// multiplied, so that nobody waits for it; where something else takes the registers, when it is added.
template <int COLUMNS>
struct BiasOfLane {
    static constexpr int SIZE = size_of(TYPE_BIAS);
    using Pair = u32[SIZE == 4 ? 2 : 1];

    const Epilogue& epilogue;
    int first;
    Pair pairs[USE_BIAS && KEEP_BIAS ? COLUMNS / 8 : 1];

    __device__ __forceinline__ BiasOfLane(const Epilogue& epilogue, int col0, u32 lane)
        : epilogue(epilogue), first(col0 + int(lane % 4) * 2) {
        if constexpr (USE_BIAS && KEEP_BIAS)
#pragma unroll
            for (int j = 0; j < COLUMNS / 8; ++j) load(pairs[j], j);
    }

    // Of the eight columns number `j`.
    __device__ __forceinline__ void get(float (&addends)[2], int j) const {
        Pair words;
        if constexpr (KEEP_BIAS)
#pragma unroll
            for (int i = 0; i < int(sizeof(Pair) / 4); ++i) words[i] = pairs[j][i];
        else
            load(words, j);
#pragma unroll
        for (int e = 0; e < 2; ++e) addends[e] = to_f32<TYPE_BIAS>(words[SIZE == 4 ? e : 0], SIZE == 4 ? 0 : e);
    }

private:
    __device__ __forceinline__ void load(Pair& pair, int j) const {
        const int col = first + j * 8;
        load_row_part<TYPE_BIAS, 2 * SIZE, (VEC_BIAS < 2 ? 1 : 2) * SIZE>(pair, epilogue.bias + col * i64(SIZE),
                                                                          epilogue.n - col);
    }
};

// COLUMNS of D a warp finishes, in pieces of 16 rows by at most WIDEST bytes. The 16-byte parts of a row lie permuted: each
// 128 bytes are turned by TURN parts against those before. The copy engine wants 128 and 1.
template <int COLUMNS, int WIDEST = 128, int TURN = 1>
struct StagedPieces {
    static constexpr int SIZE = size_of(TYPE_D);
    static constexpr int ROW = COLUMNS * SIZE;
    static constexpr int LINE = WIDEST >= 128 && ROW % 128 == 0 ? 128 : ROW % 64 == 0 ? 64 : 32;  // bytes
    static constexpr int WIDTH = LINE / SIZE;
    static constexpr int COUNT = COLUMNS / WIDTH;
    static constexpr u32 BYTES = 2 * 16 * 128;  // of shared memory for a warp: two pieces

    const Epilogue& epilogue;
    u32 staging;

    // The shared address of a piece: the second after it takes the same place.
    __device__ __forceinline__ u32 address(int piece) const { return staging + piece % 2 * (BYTES / 2); }

    // Finishes a piece of the sums, which begin in D at `row0` and `col0`, and writes it to its address, `target`.
    __device__ __forceinline__ void fill(u32 target, const float (&sums)[COLUMNS / 8][4], const BiasOfLane<COLUMNS>& bias,
                                         int piece, int row0, int col0, u32 lane) const {
#pragma unroll
        for (int pair = 0; pair < WIDTH / 16; ++pair) {
            const int j = piece * (WIDTH / 8) + pair * 2;
            float values[8];
            add_up(values, sums, bias, j, row0, col0, lane);
            finish(values, j, row0, col0, lane);
            write(target, pair, values, lane);
        }
    }

    // What the number of a 16-byte part is crossed with: the number of the 128-byte line, modulo the parts of a row.
    static __device__ __forceinline__ u32 twist(u32 row) { return row * LINE / 128 * TURN % (LINE / 16); }

private:
    // The four pairs of neighbours of a lane in 16 columns, from eight number `j` on: two rows eight apart, twice.
    __device__ __forceinline__ void add_up(float (&values)[8], const float (&sums)[COLUMNS / 8][4],
                                           const BiasOfLane<COLUMNS>& bias, int j, int row0, int col0, u32 lane) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float addends[2] = {};
            if constexpr (USE_BIAS) bias.get(addends, j + half);
#pragma unroll
            for (int e = 0; e < 4; ++e) values[half * 4 + e] = fmaf(epilogue.alpha, sums[j + half][e], addends[e % 2]);
        }
        if constexpr (USE_C)
            for_each_pair(values, j, row0, col0, lane, [&](float(&pair)[2], i64 row, int col, int available) {
                add_row<TYPE_C, 2, (VEC_C < 2 ? VEC_C : 2)>(
                    pair, epilogue.c + (row * epilogue.ldc + col) * size_of(TYPE_C), available, epilogue.beta);
            });
    }

    __device__ __forceinline__ void finish(float (&values)[8], int j, int row0, int col0, u32 lane) const {
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = activate<ACTIVATION>(values[e]);
        if constexpr (USE_RESIDUAL)
            for_each_pair(values, j, row0, col0, lane, [&](float(&pair)[2], i64 row, int col, int available) {
                add_row<TYPE_RESIDUAL, 2, (VEC_RESIDUAL < 2 ? VEC_RESIDUAL : 2)>(
                    pair, epilogue.residual + (row * epilogue.ldr + col) * size_of(TYPE_RESIDUAL), available, 1.0f);
            });
    }

    template <class Do>
    __device__ __forceinline__ void for_each_pair(float (&values)[8], int j, int row0, int col0, u32 lane, Do act) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int col = col0 + (j + half) * 8 + int(lane % 4) * 2;
#pragma unroll
            for (int lower = 0; lower < 2; ++lower) {
                const i64 row = row0 + lower * 8 + int(lane / 4);
                act(reinterpret_cast<float(&)[2]>(values[half * 4 + lower * 2]), row, col,
                    row < epilogue.m ? epilogue.n - col : 0);
            }
        }
    }

    // 16 columns of the piece, number `pair`.
    static __device__ __forceinline__ void write(u32 target, int pair, const float (&values)[8], u32 lane) {
        if constexpr (SIZE == 2) {
            const u32 row = lane % 16, part = pair * 2 + lane / 16;
            store_matrices(target + row * LINE + (part ^ twist(row)) * 16, pack_pair<TYPE_D>(values[0], values[1]),
                           pack_pair<TYPE_D>(values[2], values[3]), pack_pair<TYPE_D>(values[4], values[5]),
                           pack_pair<TYPE_D>(values[6], values[7]));
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const u32 row = e % 2 * 8 + lane / 4, byte = (pair * 16 + e / 2 * 8 + lane % 4 * 2) * SIZE;
                const u32 words[2] = {__float_as_uint(values[2 * e]), __float_as_uint(values[2 * e + 1])};
                store_shared<8>(target + row * LINE + (byte ^ twist(row) * 16), words);
            }
        }
    }
};

}  // namespace dgw
