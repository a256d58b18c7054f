// One row of a thread's results: scaled, added to beta * C, rounded and stored in the widest pieces that C and D allow.
#pragma once

#include "dgw/memory.cuh"

namespace dgw {

// PIECE elements of `values`, rounded to T, as packed words.
template <Type T, int PIECE>
__device__ __forceinline__ void round_piece(u32* words, const float* values) {
    if constexpr (size_of(T) == 4 || PIECE == 1) {
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
        if (first < available) store_global<BYTES>(target + first * size_of(T), words);
    }
}

}  // namespace dgw
