// The matrix multiplication of a warpgroup (wgmma, sm_90a): 64 x N sums in registers += A (64 x 16) * B (16 x N), both in
// shared memory, for 16-bit elements. It runs on while the warps do other things, until they wait for its group.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

// Before the first multiplication, and after other instructions have written the sums.
__device__ __forceinline__ void begin_multiplications() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_multiplications() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void wait_for_multiplications() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The operands of the instruction for N columns: their names in PTX, and the sums that they stand for. A lane holds, of
// every eight columns j, s[j][0..1] of row 16 * warp + lane / 4, columns lane % 4 * 2 and the next, and s[j][2..3] of the
// row eight below: for each warp the layout of mma.sync m16n8.
#define DGW_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define DGW_SUMS_16 \
    "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), \
        "+f"(s[1][0]), "+f"(s[1][1]), "+f"(s[1][2]), "+f"(s[1][3])
#define DGW_NAMES_32 DGW_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define DGW_SUMS_32 \
    DGW_SUMS_16, "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]), \
        "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3])
#define DGW_NAMES_48 DGW_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define DGW_SUMS_48 \
    DGW_SUMS_32, "+f"(s[4][0]), "+f"(s[4][1]), "+f"(s[4][2]), "+f"(s[4][3]), \
        "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3])
#define DGW_NAMES_64 DGW_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define DGW_SUMS_64 \
    DGW_SUMS_48, "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), \
        "+f"(s[7][0]), "+f"(s[7][1]), "+f"(s[7][2]), "+f"(s[7][3])
#define DGW_NAMES_80 DGW_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define DGW_SUMS_80 \
    DGW_SUMS_64, "+f"(s[8][0]), "+f"(s[8][1]), "+f"(s[8][2]), "+f"(s[8][3]), \
        "+f"(s[9][0]), "+f"(s[9][1]), "+f"(s[9][2]), "+f"(s[9][3])
#define DGW_NAMES_96 DGW_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define DGW_SUMS_96 \
    DGW_SUMS_80, "+f"(s[10][0]), "+f"(s[10][1]), "+f"(s[10][2]), "+f"(s[10][3]), \
        "+f"(s[11][0]), "+f"(s[11][1]), "+f"(s[11][2]), "+f"(s[11][3])
#define DGW_NAMES_112 DGW_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define DGW_SUMS_112 \
    DGW_SUMS_96, "+f"(s[12][0]), "+f"(s[12][1]), "+f"(s[12][2]), "+f"(s[12][3]), \
        "+f"(s[13][0]), "+f"(s[13][1]), "+f"(s[13][2]), "+f"(s[13][3])
#define DGW_NAMES_128 DGW_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define DGW_SUMS_128 \
    DGW_SUMS_112, "+f"(s[14][0]), "+f"(s[14][1]), "+f"(s[14][2]), "+f"(s[14][3]), \
        "+f"(s[15][0]), "+f"(s[15][1]), "+f"(s[15][2]), "+f"(s[15][3])
#define DGW_NAMES_144 DGW_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define DGW_SUMS_144 \
    DGW_SUMS_128, "+f"(s[16][0]), "+f"(s[16][1]), "+f"(s[16][2]), "+f"(s[16][3]), \
        "+f"(s[17][0]), "+f"(s[17][1]), "+f"(s[17][2]), "+f"(s[17][3])
#define DGW_NAMES_160 DGW_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define DGW_SUMS_160 \
    DGW_SUMS_144, "+f"(s[18][0]), "+f"(s[18][1]), "+f"(s[18][2]), "+f"(s[18][3]), \
        "+f"(s[19][0]), "+f"(s[19][1]), "+f"(s[19][2]), "+f"(s[19][3])
#define DGW_NAMES_176 DGW_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define DGW_SUMS_176 \
    DGW_SUMS_160, "+f"(s[20][0]), "+f"(s[20][1]), "+f"(s[20][2]), "+f"(s[20][3]), \
        "+f"(s[21][0]), "+f"(s[21][1]), "+f"(s[21][2]), "+f"(s[21][3])
#define DGW_NAMES_192 DGW_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define DGW_SUMS_192 \
    DGW_SUMS_176, "+f"(s[22][0]), "+f"(s[22][1]), "+f"(s[22][2]), "+f"(s[22][3]), \
        "+f"(s[23][0]), "+f"(s[23][1]), "+f"(s[23][2]), "+f"(s[23][3])
#define DGW_NAMES_208 DGW_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define DGW_SUMS_208 \
    DGW_SUMS_192, "+f"(s[24][0]), "+f"(s[24][1]), "+f"(s[24][2]), "+f"(s[24][3]), \
        "+f"(s[25][0]), "+f"(s[25][1]), "+f"(s[25][2]), "+f"(s[25][3])
#define DGW_NAMES_224 DGW_NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define DGW_SUMS_224 \
    DGW_SUMS_208, "+f"(s[26][0]), "+f"(s[26][1]), "+f"(s[26][2]), "+f"(s[26][3]), \
        "+f"(s[27][0]), "+f"(s[27][1]), "+f"(s[27][2]), "+f"(s[27][3])
#define DGW_NAMES_240 DGW_NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define DGW_SUMS_240 \
    DGW_SUMS_224, "+f"(s[28][0]), "+f"(s[28][1]), "+f"(s[28][2]), "+f"(s[28][3]), \
        "+f"(s[29][0]), "+f"(s[29][1]), "+f"(s[29][2]), "+f"(s[29][3])
#define DGW_NAMES_256 DGW_NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define DGW_SUMS_256 \
    DGW_SUMS_240, "+f"(s[30][0]), "+f"(s[30][1]), "+f"(s[30][2]), "+f"(s[30][3]), \
        "+f"(s[31][0]), "+f"(s[31][1]), "+f"(s[31][2]), "+f"(s[31][3])

#define DGW_WGMMA_OF(N, TYPE, A, B, ACCUMULATE, ACROSS_A, ACROSS_B) \
    asm volatile( \
        "{ .reg .pred p; setp.ne.u32 p, %" #ACCUMULATE ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" DGW_NAMES_##N "}, %" #A ", %" #B \
        ", p, 1, 1, %" #ACROSS_A ", %" #ACROSS_B "; }" \
        : DGW_SUMS_##N \
        : "l"(a), "l"(b), "r"(u32(accumulate)), "n"(int(!K_MAJOR_OF_A)), "n"(int(!K_MAJOR_OF_B)))

#define DGW_WGMMA(N, A, B, ACCUMULATE, ACROSS_A, ACROSS_B) \
    if constexpr (COLUMNS == N) { \
        if constexpr (T == BF16) \
            DGW_WGMMA_OF(N, "bf16", A, B, ACCUMULATE, ACROSS_A, ACROSS_B); \
        else \
            DGW_WGMMA_OF(N, "f16", A, B, ACCUMULATE, ACROSS_A, ACROSS_B); \
    }

// s = a * b, or s + a * b to `accumulate`. `a` and `b` are descriptors of tiles (wgmma_tile.cuh).
template <Type T, bool K_MAJOR_OF_A, bool K_MAJOR_OF_B, int TILES_N>
__device__ __forceinline__ void multiply_warpgroup(float (&s)[TILES_N][4], u64 a, u64 b, bool accumulate) {
    constexpr int COLUMNS = TILES_N * 8;
    static_assert(COLUMNS % 16 == 0 && COLUMNS <= 256, "columns are a multiple of 16, at most 256");
    DGW_WGMMA(16, 8, 9, 10, 11, 12)
    DGW_WGMMA(32, 16, 17, 18, 19, 20)
    DGW_WGMMA(48, 24, 25, 26, 27, 28)
    DGW_WGMMA(64, 32, 33, 34, 35, 36)
    DGW_WGMMA(80, 40, 41, 42, 43, 44)
    DGW_WGMMA(96, 48, 49, 50, 51, 52)
    DGW_WGMMA(112, 56, 57, 58, 59, 60)
    DGW_WGMMA(128, 64, 65, 66, 67, 68)
    DGW_WGMMA(144, 72, 73, 74, 75, 76)
    DGW_WGMMA(160, 80, 81, 82, 83, 84)
    DGW_WGMMA(176, 88, 89, 90, 91, 92)
    DGW_WGMMA(192, 96, 97, 98, 99, 100)
    DGW_WGMMA(208, 104, 105, 106, 107, 108)
    DGW_WGMMA(224, 112, 113, 114, 115, 116)
    DGW_WGMMA(240, 120, 121, 122, 123, 124)
    DGW_WGMMA(256, 128, 129, 130, 131, 132)
}

#undef DGW_WGMMA

}  // namespace dgw
