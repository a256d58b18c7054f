// The way of finished sums to D from registers: neighbouring lanes exchange, then each stores a part of a row.
#pragma once

#include "dgw/epilogue.cuh"

namespace dgw {

// A warp's 16 rows by COLUMNS of D, from `row0` and `col0` on.
template <int COLUMNS>
__device__ __forceinline__ void store_directly(const Epilogue& epilogue, const float (&sums)[COLUMNS / 8][4], int row0,
                                               int col0, u32 lane) {
    Epilogue narrowed = epilogue;
    if constexpr (COLUMNS % 32 != 0) narrowed.n = min(narrowed.n, col0 + COLUMNS);
#pragma unroll
    for (int first = 0; first < COLUMNS / 8; first += 4) {  // 32 columns at a time take few registers beside the sums
        float part[1][4][4] = {};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (first + j < COLUMNS / 8) part[0][j][e] = sums[first + j][e];
        narrowed.store(part, row0, col0 + first * 8, lane);
    }
}

}  // namespace dgw
