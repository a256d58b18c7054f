// aligned_copy: A and B with rows at multiples of 128 bytes, so that the copy engine can step them, from any others.
// Blocks of y 0 copy A, of y 1 copy B; a thread moves eight elements, of which it loads VEC at a time.
#include "dgw/memory.cuh"

using namespace dgw;

template <int VEC>
__device__ __forceinline__ void copy(const char* from, char* to, int lines, int width, i64 from_ld, i64 to_ld) {
    const int pieces = int(to_ld / 8);
    const i64 all = i64(lines) * pieces;
    for (i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x; index < all; index += i64(gridDim.x) * blockDim.x) {
        const i64 line = index / pieces;
        const int col = int(index % pieces) * 8;
        u32 words[4] = {};
#pragma unroll
        for (int e = 0; e < 8; e += VEC) {
            u32 part[VEC <= 2 ? 1 : VEC / 2];
            load_global<VEC * 2>(part, from + (line * from_ld + col + e) * 2, col + e < width);
            if constexpr (VEC == 1)
                words[e / 2] |= part[0] << e % 2 * 16;
            else
#pragma unroll
                for (int w = 0; w < VEC / 2; ++w) words[e / 2 + w] = part[w];
        }
        store_global<16>(to + (line * to_ld + col) * 2, words, true);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    aligned_copy(const char* a, const char* b, char* to_a, char* to_b, int lines_a, int width_a, int lines_b, int width_b,
                 i64 lda, i64 ldb, i64 to_lda, i64 to_ldb) {
    if (blockIdx.y == 0)
        copy<VEC_A>(a, to_a, lines_a, width_a, lda, to_lda);
    else
        copy<VEC_B>(b, to_b, lines_b, width_b, ldb, to_ldb);
}
