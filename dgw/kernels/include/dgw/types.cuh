// Element types and their conversions. Elements travel as raw bits in 32-bit words; arithmetic is f32.
#pragma once

namespace dgw {

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum Type { F16, BF16, F32, TF32, S8, E4M3 };

__host__ __device__ constexpr int size_of(Type type) {
    return type == F32 || type == TF32 ? 4 : type == S8 || type == E4M3 ? 1 : 2;
}

__host__ __device__ constexpr int log2_of(int value) { return value <= 1 ? 0 : 1 + log2_of(value / 2); }

// Element number `part` (0: low) of the elements packed in `word`, as f32. `part` is a compile-time constant after
// unrolling.
template <Type T>
__device__ __forceinline__ float to_f32(u32 word, int part) {
    if constexpr (T == F32 || T == TF32) {
        return __uint_as_float(word);
    } else if constexpr (T == BF16) {
        return __uint_as_float(part == 0 ? word << 16 : word & 0xffff0000u);
    } else {
        float value;
        if (part == 0)
            asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, lo; }" : "=f"(value) : "r"(word));
        else
            asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, hi; }" : "=f"(value) : "r"(word));
        return value;
    }
}

// One element rounded to nearest even, in the low bits of the result.
template <Type T>
__device__ __forceinline__ u32 from_f32(float value) {
    if constexpr (T == F32 || T == TF32) {
        return __float_as_uint(value);
    } else {
        u16 bits;
        if constexpr (T == BF16)
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        else
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
}

// Two 16-bit elements in one word, `low` in the low half.
template <Type T>
__device__ __forceinline__ u32 pack_pair(float low, float high) {
    u32 word;
    if constexpr (T == BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

}  // namespace dgw
