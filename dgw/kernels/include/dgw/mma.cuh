// Tensor-core instructions of sm_80 and newer: ldmatrix, mma.sync, and the exchange that makes their results storable.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

// Four 8x8 matrices of 16-bit elements (or 8x4 of 32-bit). Lane i gives the address of row i % 8 of matrix i / 8; lane i
// receives of each matrix 4 bytes: row i / 4, and the pair of columns i % 4. TRANSPOSED exchanges rows and columns.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(u32& m0, u32& m1, u32& m2, u32& m3, u32 address) {
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                     : "r"(address)
                     : "memory");
}

// sums += a * b for 16 x 8 sums and a depth of 32 bytes: 16 elements of f16 or bf16, 8 of tf32.
template <Type T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (T == F16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else if constexpr (T == BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The nearest tf32 (19 of 32 bits); the tensor core would cut the other 13 bits off.
__device__ __forceinline__ u32 round_to_tf32(u32 bits) {
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
}

__device__ __forceinline__ u32 from_lane_xor(u32 word, u32 mask) {
    u32 received;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(received) : "r"(word), "r"(mask));
    return received;
}

// Four neighbouring lanes hold one word for each of them, words[of]. Afterwards lane q of the four holds its words of all,
// words[from]: a 4 x 4 transposition in two exchanges.
__device__ __forceinline__ void exchange(u32 (&words)[4], u32 lane) {
#pragma unroll
    for (u32 distance = 1; distance <= 2; distance *= 2) {
        const bool upper = lane & distance;
#pragma unroll
        for (u32 of = 0; of < 4; ++of) {
            if (of & distance) continue;
            u32& low = words[of];
            u32& high = words[of + distance];
            const u32 received = from_lane_xor(upper ? low : high, distance);
            low = upper ? received : low;
            high = upper ? high : received;
        }
    }
}

// Four neighbouring lanes hold of four 8-column tiles two columns each, values[2 * tile + e]. Afterwards lane q of the
// four holds all eight columns of tile q.
__device__ __forceinline__ void gather_columns(float (&values)[8], u32 lane) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        u32 words[4];
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) words[tile] = __float_as_uint(values[2 * tile + e]);
        exchange(words, lane);
#pragma unroll
        for (int from = 0; from < 4; ++from) values[2 * from + e] = __uint_as_float(words[from]);
    }
}

}  // namespace dgw
