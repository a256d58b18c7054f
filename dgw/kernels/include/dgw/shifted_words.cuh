// Elements of two bytes that lie across the granules of 16 bytes in which memory is loaded.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

constexpr int GRANULE = 8;  // elements

// How many elements of its granule are before the one at `address`.
__device__ __forceinline__ int elements_before(const char* address) { return int(u32(u64(address)) / 2 % GRANULE); }

// Elements `shift` to `shift` + 7 of the sixteen in `words`, in the first four words. 0 <= shift < 8.
__device__ __forceinline__ void shift_down(u32 (&words)[8], int shift) {
#pragma unroll
    for (int w = 0; w < 6; ++w) words[w] = shift & 4 ? words[w + 2] : words[w];
#pragma unroll
    for (int w = 0; w < 5; ++w) words[w] = shift & 2 ? words[w + 1] : words[w];
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = __funnelshift_r(words[w], words[w + 1], shift % 2 * 16);
}

}  // namespace dgw
