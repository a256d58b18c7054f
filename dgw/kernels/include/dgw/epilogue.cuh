// What may be applied to the finished sums of a tile before they are stored. All of it is chosen at compile time.
#pragma once

#include "dgw/mma.cuh"
#include "dgw/output.cuh"

namespace dgw {

enum Activation { NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU };
enum Quantisation { NO_SCALE, SCALE_PER_TENSOR, SCALE_PER_ROW };

// x / (1 + e^-z), through powers of two.
__device__ __forceinline__ float times_sigmoid(float x, float z) {
    float power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(z * -1.4426950408889634f));
    return __fdividef(x, 1.0f + power);
}

// gelu: x Phi(x). gelu-tanh: x/2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). silu: x sigmoid(x).
// NaN stays NaN.
template <Activation A>
__device__ __forceinline__ float activate(float x) {
    if constexpr (A == RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (A == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    if constexpr (A == GELU_TANH) return times_sigmoid(x, x * fmaf(0.071354816273f * x, x, 1.5957691216f));
    if constexpr (A == SILU) return times_sigmoid(x, x);
    return x;
}

// activation(alpha A B + beta C + bias) + residual; where D has a scale, divided by it and moved by the zero point.
struct Epilogue {
    const char *c, *bias, *residual;
    const float* scale;
    char* d;
    int m, n;
    i64 ldc, ldd, ldr;
    float alpha, beta, zero_point;

    // Stores the sums of a warp, whose first row and column in D are `row0` and `col0`. A lane holds two neighbouring
    // columns of each 16 x 8 tile: exchanged with three others, eight of a row.
    template <int TILES_M, int TILES_N>
    __device__ __forceinline__ void store(const float (&sums)[TILES_M][TILES_N][4], int row0, int col0, u32 lane) const {
        float steps[TILES_M * 2];  // of a stored value in one unit of the sum: 1 / scale
#pragma unroll
        for (int i = 0; i < TILES_M * 2; ++i) {
            const int row = row0 + i * 8 + int(lane / 4);
            if constexpr (QUANTISATION == SCALE_PER_ROW) steps[i] = __fdividef(1.0f, row < m ? scale[row] : 1.0f);
            if constexpr (QUANTISATION == SCALE_PER_TENSOR) steps[i] = __fdividef(1.0f, scale[0]);
        }
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            const int first = col0 + j * 8, col = first + int(lane % 4) * 8;
            // What is read by rows is added after the exchange. Otherwise values are rounded before, and several of them
            // travel in a word.
            if constexpr (USE_C || USE_RESIDUAL || size_of(TYPE_D) == 4)
                store_late(sums, j, row0, col, lane, steps);
            else
                store_early(sums, j, row0, first, col, lane, steps);
        }
    }

private:
    template <int TILES_M, int TILES_N>
    __device__ __forceinline__ void store_late(const float (&sums)[TILES_M][TILES_N][4], int j, int row0, int col,
                                               u32 lane, const float* steps) const {
        float addends[8] = {};
        if constexpr (USE_BIAS)
            add_row<TYPE_BIAS, 8, VEC_BIAS>(addends, bias + col * i64(size_of(TYPE_BIAS)), n - col, 1.0f);
#pragma unroll
        for (int i = 0; i < TILES_M * 2; ++i) {
            const i64 row = row0 + i * 8 + int(lane / 4);
            const int available = row < m ? n - col : 0;
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            gather_columns(values, lane);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = fmaf(alpha, values[e], addends[e]);
            if constexpr (USE_C)
                add_row<TYPE_C, 8, VEC_C>(values, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = activate<ACTIVATION>(values[e]);
            if constexpr (USE_RESIDUAL)
                add_row<TYPE_RESIDUAL, 8, VEC_RESIDUAL>(
                    values, residual + (row * ldr + col) * size_of(TYPE_RESIDUAL), available, 1.0f);
            if constexpr (QUANTISATION != NO_SCALE) {
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] = fmaf(values[e], steps[i], zero_point);
            }
            store_row<TYPE_D, 8, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), values, available);
        }
    }

    template <int TILES_M, int TILES_N>
    __device__ __forceinline__ void store_early(const float (&sums)[TILES_M][TILES_N][4], int j, int row0, int first,
                                                int col, u32 lane, const float* steps) const {
        constexpr int ROWS = size_of(TYPE_D) == 1 ? 2 : 1;  // in a word
        float addends[4][2] = {};
        if constexpr (USE_BIAS) {
#pragma unroll
            for (int tile = 0; tile < 4; ++tile) {
                const int at = first + tile * 8 + int(lane % 4) * 2;
                add_row<TYPE_BIAS, 2, VEC_BIAS < 2 ? VEC_BIAS : 2>(addends[tile], bias + at * i64(size_of(TYPE_BIAS)),
                                                                   n - at, 1.0f);
            }
        }
#pragma unroll
        for (int i = 0; i < TILES_M * 2; i += ROWS) {
            u32 words[4];
#pragma unroll
            for (int tile = 0; tile < 4; ++tile) {
                float values[2 * ROWS];
#pragma unroll
                for (int e = 0; e < 2 * ROWS; ++e) {
                    const float sum = sums[i / 2][j + tile][i % 2 * 2 + e];
                    values[e] = activate<ACTIVATION>(fmaf(alpha, sum, addends[tile][e % 2]));
                    if constexpr (QUANTISATION != NO_SCALE) values[e] = fmaf(values[e], steps[i + e / 2], zero_point);
                }
                round_piece<TYPE_D, 2 * ROWS>(words + tile, values);
            }
            exchange(words, lane);
#pragma unroll
            for (int h = 0; h < ROWS; ++h) {
                const i64 row = row0 + (i + h) * 8 + int(lane / 4);
                char* target = d + (row * ldd + col) * size_of(TYPE_D);
                const int available = row < m ? n - col : 0;
                if constexpr (ROWS == 1) {
                    store_rounded<TYPE_D, VEC_D>(target, words, available);
                } else {
                    const u32 half = h == 0 ? 0x5410 : 0x7632;
                    const u32 bytes[2] = {__byte_perm(words[0], words[1], half), __byte_perm(words[2], words[3], half)};
                    store_rounded<TYPE_D, VEC_D>(target, bytes, available);
                }
            }
        }
    }
};

}  // namespace dgw
