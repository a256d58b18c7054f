// The columns of a tile whose lines of B were read in phases (tma.cuh) put in order.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

// Of four lanes, each with four pairs of floats: afterwards a lane has, of each of them, the pair that has its own number.
__device__ __forceinline__ void transpose(float (&pairs)[4][2], u32 lane) {
#pragma unroll
    for (int distance = 1; distance <= 2; ++distance)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (k & distance) continue;
            const bool upper = lane & distance;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float &low = pairs[k][e], &high = pairs[k + distance][e];
                const float got = __shfl_xor_sync(~0u, upper ? low : high, distance);
                low = upper ? got : low;
                high = upper ? high : got;
            }
        }
}

// A warp's 16 rows by EIGHTS times eight columns. As they were multiplied, blocks of 8 PHASES columns have the lines of phase
// c in the eight columns number c, a PHASES-th of all apart: a lane has 2 PHASES neighbours of a row. Afterwards it has two of
// each eight, as fragments do.
template <int PHASES, int EIGHTS>
__device__ __forceinline__ void order_columns(float (&sums)[EIGHTS][4], u32 lane) {
    if constexpr (PHASES > 1) {
        constexpr int BLOCKS = EIGHTS / PHASES;
        float ordered[EIGHTS][4];
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                float run[2 * PHASES];  // neighbours in D
#pragma unroll
                for (int i = 0; i < 2 * PHASES; ++i) run[i] = sums[i % PHASES * BLOCKS + block][row * 2 + i / PHASES];
                if constexpr (PHASES == 2) {
#pragma unroll
                    for (int eight = 0; eight < 2; ++eight)
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            const int from = int(lane / 4 * 4 + lane % 4 / 2) + eight * 2;
                            const float first = __shfl_sync(~0u, run[e], from), second = __shfl_sync(~0u, run[2 + e], from);
                            ordered[block * 2 + eight][row * 2 + e] = lane % 2 ? second : first;
                        }
                } else {
#pragma unroll
                    for (int half = 0; half < PHASES / 4; ++half) {
                        float pairs[4][2];
#pragma unroll
                        for (int i = 0; i < 8; ++i) pairs[i / 2][i % 2] = run[half * 8 + i];
                        transpose(pairs, lane);
#pragma unroll
                        for (int i = 0; i < 8; ++i)
                            ordered[block * PHASES + i / 2 * (PHASES / 4) + half][row * 2 + i % 2] = pairs[i / 2][i % 2];
                    }
                }
            }
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[j][e] = ordered[j][e];
    }
}

}  // namespace dgw
