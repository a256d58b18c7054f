// The way of finished sums to D from registers: neighbouring lanes exchange, then each stores a part of a row.
#pragma once

#include "dgw/epilogue.cuh"

namespace dgw {

// A warp's 16 rows by COLUMNS of D, from `row0` and `col0` on.
template <int COLUMNS>
__device__ __forceinline__ void store_directly(const Epilogue& epilogue, const float (&sums)[COLUMNS / 8][4], int row0,
                                               int col0, u32 lane) {
    constexpr int TILES = (COLUMNS + 31) / 32 * 4;
    Epilogue narrowed = epilogue;
    if constexpr (COLUMNS % 32 != 0) narrowed.n = min(narrowed.n, col0 + COLUMNS);
    float padded[1][TILES][4] = {};
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) padded[0][j][e] = sums[j][e];
    narrowed.store(padded, row0, col0, lane);
}

}  // namespace dgw
