// Element types as the host names them (`ELEMENT_CODES` in check.py): reading any of them exactly as a double, and
// rounding a double to one of them, to nearest with ties to even.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum Element { F16, BF16, F32, E4M3, S8, S32, F64, TF32, S4 };

__device__ __forceinline__ double f16_value(u16 bits) {
    float wide;
    asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(wide) : "h"(bits));
    return wide;
}

__device__ __forceinline__ double e4m3_value(u8 bits) {
    const int exponent = (bits >> 3) & 15, fraction = bits & 7;
    if (exponent == 15 && fraction == 7) return __longlong_as_double(0x7FF8000000000000ll);
    const double size = exponent ? ldexp(1.0 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);
    return bits & 0x80 ? -size : size;
}

__device__ __forceinline__ double load_element(u64 base, i64 i, i64 type) {
    switch (type) {
        case F16: return f16_value(((const u16*)base)[i]);
        case BF16: return __uint_as_float((u32)((const u16*)base)[i] << 16);
        case F32: case TF32: return ((const float*)base)[i];
        case E4M3: return e4m3_value(((const u8*)base)[i]);
        case S8: return ((const signed char*)base)[i];
        case S32: return ((const int*)base)[i];
        case S4: return (double)((int)((u32)((const u8*)base)[i] << 28) >> 28);
        default: return ((const double*)base)[i];
    }
}

// Through float: only used for values that float holds exactly, or that are rounded to float anyway.
__device__ inline double round_to(double x, i64 type) {
    const float single = __double2float_rn(x);
    const u32 bits = __float_as_uint(single);
    if (x != x) return x;
    switch (type) {
        case F16: {
            u16 half;
            asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(half) : "f"(single));
            return f16_value(half);
        }
        case BF16: return __uint_as_float((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u);
        case F32: return single;
        case TF32: return isinf(single) ? single : __uint_as_float((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000u);
        case E4M3: {
            const double size = fmin(fabs(x), 448.0);
            int exponent = size > 0 ? ilogb(size) : -6;
            if (exponent < -6) exponent = -6;
            return copysign(ldexp(rint(ldexp(size, 3 - exponent)), exponent - 3), x);
        }
        case S8: return fmin(fmax(rint(x), -128.0), 127.0);
        case S4: return fmin(fmax(rint(x), -8.0), 7.0);
        case S32: return fmin(fmax(rint(x), -2147483648.0), 2147483647.0);
        default: return x;
    }
}
