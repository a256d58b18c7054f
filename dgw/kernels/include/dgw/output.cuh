// One row of a thread's results: scaled, added to beta * C, rounded and stored in the widest pieces that C and D allow.
#pragma once

#include "dgw/memory.cuh"

namespace dgw {

// The nearest integer, ties to even, of -128 .. 127, in the low byte. The large addend leaves no fraction bits.
__device__ __forceinline__ u32 to_s8(float value) {
    return __float_as_uint(fminf(fmaxf(value, -128.0f), 127.0f) + 12582912.0f);
}

// Two e4m3, `low` in the low byte: to nearest even, at most 448. Needs sm_89.
__device__ __forceinline__ u32 pack_e4m3(float low, float high) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two or one of the one-byte elements of T in the low half.
template <Type T, bool BOTH>
__device__ __forceinline__ u32 pack_bytes(const float* values) {
    if constexpr (T == E4M3) return pack_e4m3(values[0], BOTH ? values[1] : 0.0f);
    return BOTH ? __byte_perm(to_s8(values[0]), to_s8(values[1]), 0x0040) : to_s8(values[0]);
}

// PIECE elements of `values`, rounded to T, as packed words.
template <Type T, int PIECE>
__device__ __forceinline__ void round_piece(u32* words, const float* values) {
    if constexpr (size_of(T) == 1 && PIECE >= 4) {
#pragma unroll
        for (int i = 0; i < PIECE / 4; ++i)
            words[i] = __byte_perm(pack_bytes<T, true>(values + 4 * i), pack_bytes<T, true>(values + 4 * i + 2), 0x5410);
    } else if constexpr (size_of(T) == 1) {
        words[0] = pack_bytes<T, PIECE == 2>(values);
    } else if constexpr (size_of(T) == 4 || PIECE == 1) {
#pragma unroll
        for (int i = 0; i < PIECE; ++i) words[i] = from_f32<T>(values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < PIECE / 2; ++i) words[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
    }
}

// values[0..COUNT) += factor * the row of T at `source`; the elements from `available` on are not accessed.
template <Type T, int COUNT, int PIECE>
__device__ __forceinline__ void add_row(float* values, const char* source, int available, float factor) {
    constexpr int BYTES = PIECE * size_of(T);
#pragma unroll
    for (int first = 0; first < COUNT; first += PIECE) {
        u32 words[BYTES < 4 ? 1 : BYTES / 4];
        load_global<BYTES>(words, source + first * size_of(T), first < available);
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
            const int element = i * size_of(T);
            values[first + i] = fmaf(factor, to_f32<T>(words[element / 4], element % 4 / 2), values[first + i]);
        }
    }
}

// Stores the first `available` of COUNT values.
template <Type T, int COUNT, int PIECE>
__device__ __forceinline__ void store_row(char* target, const float* values, int available) {
    constexpr int BYTES = PIECE * size_of(T);
#pragma unroll
    for (int first = 0; first < COUNT; first += PIECE) {
        u32 words[BYTES < 4 ? 1 : BYTES / 4];
        round_piece<T, PIECE>(words, values + first);
        store_global<BYTES>(target + first * size_of(T), words, first < available);
    }
}

// Stores the first `available` of eight elements of T (two bytes or one), which lie in `words` already rounded.
template <Type T, int PIECE>
__device__ __forceinline__ void store_rounded(char* target, const u32* words, int available) {
    constexpr int BYTES = PIECE * size_of(T);
#pragma unroll
    for (int first = 0; first < 8; first += PIECE) {
        const int byte = first * size_of(T);
        const u32 low = words[byte / 4] >> byte % 4 * 8;  // pieces of less than a word
        store_global<BYTES>(target + byte, BYTES < 4 ? &low : words + byte / 4, first < available);
    }
}

}  // namespace dgw
