// What may be applied to the finished sums of a tile before they are stored. All of it is chosen at compile time.
#pragma once

#include "dgw/mma.cuh"
#include "dgw/output.cuh"

namespace dgw {

enum Activation { NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU };
enum Quantisation { NO_SCALE, SCALE_PER_TENSOR, SCALE_PER_ROW };

// 2^x; what is too small for a normal number becomes zero.
__device__ __forceinline__ float power_of_two(float x) {
    float found;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
    return found;
}

// x / (1 + 2^power).
__device__ __forceinline__ float over_one_and_power(float x, float power) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power_of_two(power)));
    return x * inverse;
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), and Phi(-t) = 2^p(t), p the polynomial whose largest error of Phi on 0 .. 6.5 is
// least: of degree 5 where D has 16 bits or fewer, else of degree 8. In f32 Phi is then good to 3.2e-7 and 4e-8 everywhere
// (tests/kernels/test_activation.py).
__device__ __forceinline__ float gelu(float x) {
    const float t = fabsf(x);
    float p;
    if constexpr (size_of(TYPE_D) <= 2) {
        p = fmaf(-0.000518859248f, t, 0.00738720456f);
        p = fmaf(p, t, -0.0525380261f);
        p = fmaf(p, t, -0.459276676f);
        p = fmaf(p, t, -1.15108311f);
        p = fmaf(p, t, -1.00000083f);
    } else {
        p = fmaf(-2.77206095e-06f, t, 3.86208849e-05f);
        p = fmaf(p, t, -0.000182548247f);
        p = fmaf(p, t, -0.000145868602f);
        p = fmaf(p, t, 0.00707546994f);
        p = fmaf(p, t, -0.0525050275f);
        p = fmaf(p, t, -0.459204912f);
        p = fmaf(p, t, -1.15110576f);
        p = fmaf(p, t, -1.0f);
    }
    return fmaf(-t, power_of_two(p), fmaxf(x, 0.0f));
}

// x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). Where D has 16 bits or fewer the tanh is approximated, to 2^-11, so
// x times it to 2^-12; else it is x sigmoid(2 u).
__device__ __forceinline__ float gelu_tanh(float x) {
    if constexpr (size_of(TYPE_D) > 2) return over_one_and_power(x, x * fmaf(-0.102943239580f * x, x, -2.30220819814f));
    float found;
    asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(x * fmaf(0.035677408137f * x, x, 0.7978845608f)));
    return fmaf(0.5f * x, found, 0.5f * x);
}

// silu: x sigmoid(x). sigmoid(z) = 1 / (1 + 2^(-z log2(e))), the factor taken into the constants. NaN stays NaN.
template <Activation A>
__device__ __forceinline__ float activate(float x) {
    if constexpr (A == RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (A == GELU) return gelu(x);
    if constexpr (A == GELU_TANH) return gelu_tanh(x);
    if constexpr (A == SILU) return over_one_and_power(x, x * -1.4426950408889634f);
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

    // What is read by rows is added after the exchange between lanes. Otherwise values are rounded before it, and several
    // of them travel in a word.
    static constexpr bool EARLY = !USE_C && !USE_RESIDUAL && size_of(TYPE_D) <= 2;
    static constexpr int ROWS = EARLY && size_of(TYPE_D) == 1 ? 2 : 1;  // of which a word has a share

    // Stores the sums of a warp, whose first row and column in D are `row0` and `col0`. A lane holds two neighbouring
    // columns of each 16 x 8 tile: exchanged with three others, eight of a row.
    template <int TILES_M, int TILES_N>
    __device__ __forceinline__ void store(const float (&sums)[TILES_M][TILES_N][4], int row0, int col0,
                                          u32 lane) const {
        float addends[TILES_N / 4][8] = {};
        float steps[TILES_M * 2];  // of a stored value in one unit of the sum: 1 / scale
        if constexpr (USE_BIAS) {
#pragma unroll
            for (int j = 0; j < TILES_N / 4; ++j) load_bias(addends[j], col0 + j * 32, lane);
        }
#pragma unroll
        for (int i = 0; i < TILES_M * 2; ++i) {
            const int row = row0 + i * 8 + int(lane / 4);
            if constexpr (QUANTISATION == SCALE_PER_ROW) steps[i] = __fdividef(1.0f, row < m ? scale[row] : 1.0f);
            if constexpr (QUANTISATION == SCALE_PER_TENSOR) steps[i] = __fdividef(1.0f, scale[0]);
        }
#pragma unroll
        for (int i = 0; i < TILES_M * 2; i += ROWS) {
            const int row = row0 + i * 8 + int(lane / 4);
#pragma unroll
            for (int j = 0; j < TILES_N / 4; ++j) {
                const int col = col0 + j * 32 + int(lane % 4) * 8;
                float values[8 * ROWS];
#pragma unroll
                for (int e = 0; e < 8 * ROWS; ++e)
                    values[e] = sums[i / 2][4 * j + e / (2 * ROWS)][i % 2 * 2 + e % (2 * ROWS)];
                if constexpr (EARLY)
                    store_early(values, addends[j], steps + i, row, col, lane);
                else
                    store_late(values, addends[j], steps[i], row, col, lane);
            }
        }
    }

private:
    // The bias of the columns whose values a lane finishes: of the 32 from `first` on, two in each of four tiles, or
    // eight neighbours.
    __device__ __forceinline__ void load_bias(float (&addends)[8], int first, u32 lane) const {
        constexpr int COUNT = EARLY ? 2 : 8;
#pragma unroll
        for (int part = 0; part < 8 / COUNT; ++part) {
            const int col = first + (EARLY ? part * 8 : 0) + int(lane % 4) * COUNT;
            add_row<TYPE_BIAS, COUNT, VEC_BIAS < COUNT ? VEC_BIAS : COUNT>(
                addends + part * COUNT, bias + col * i64(size_of(TYPE_BIAS)), n - col, 1.0f);
        }
    }

    // `values`: of each of four tiles two columns of `row` and, where ROWS is 2, of the row eight below.
    __device__ __forceinline__ void store_early(const float* values, const float* addends, const float* steps, int row,
                                                int col, u32 lane) const {
        u32 words[4];
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
            float finished[2 * ROWS];
#pragma unroll
            for (int e = 0; e < 2 * ROWS; ++e) {
                finished[e] = activate<ACTIVATION>(fmaf(alpha, values[2 * ROWS * tile + e], addends[2 * tile + e % 2]));
                if constexpr (QUANTISATION != NO_SCALE) finished[e] = fmaf(finished[e], steps[e / 2], zero_point);
            }
            round_piece<TYPE_D, 2 * ROWS>(words + tile, finished);
        }
        exchange(words, lane);
#pragma unroll
        for (int h = 0; h < ROWS; ++h) {
            const i64 stored_row = row + h * 8;
            char* target = d + (stored_row * ldd + col) * size_of(TYPE_D);
            const int available = stored_row < m ? n - col : 0;
            if constexpr (ROWS == 1) {
                store_rounded<TYPE_D, VEC_D>(target, words, available);
            } else {
                const u32 half = h == 0 ? 0x5410 : 0x7632;
                const u32 bytes[2] = {__byte_perm(words[0], words[1], half), __byte_perm(words[2], words[3], half)};
                store_rounded<TYPE_D, VEC_D>(target, bytes, available);
            }
        }
    }

    // `values`: of each of four tiles two columns of `row`.
    __device__ __forceinline__ void store_late(const float* values, const float* addends, float step, i64 row, int col,
                                               u32 lane) const {
        const int available = row < m ? n - col : 0;
        float finished[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) finished[e] = values[e];
        gather_columns(finished, lane);
#pragma unroll
        for (int e = 0; e < 8; ++e) finished[e] = fmaf(alpha, finished[e], addends[e]);
        if constexpr (USE_C)
            add_row<TYPE_C, 8, VEC_C>(finished, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
#pragma unroll
        for (int e = 0; e < 8; ++e) finished[e] = activate<ACTIVATION>(finished[e]);
        if constexpr (USE_RESIDUAL)
            add_row<TYPE_RESIDUAL, 8, VEC_RESIDUAL>(
                finished, residual + (row * ldr + col) * size_of(TYPE_RESIDUAL), available, 1.0f);
        if constexpr (QUANTISATION != NO_SCALE) {
#pragma unroll
            for (int e = 0; e < 8; ++e) finished[e] = fmaf(finished[e], step, zero_point);
        }
        store_row<TYPE_D, 8, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), finished, available);
    }
};

}  // namespace dgw
