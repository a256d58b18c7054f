// Which tile of D a block computes.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

struct TilePlace {
    int m, n;  // number of the tile along m and n
};

// Consecutive blocks take tiles of GROUP rows of tiles, column of tiles after column, so that blocks that run at the same
// time share rows of A and columns of B in the L2 cache. A last group with fewer rows is narrower.
template <int GROUP>
__device__ __forceinline__ TilePlace grouped_tile(u32 index, int tiles_m, int tiles_n) {
    const u32 in_group = u32(GROUP) * u32(tiles_n);
    const u32 first_m = index / in_group * GROUP;
    const u32 rows = u32(tiles_m) - first_m < GROUP ? u32(tiles_m) - first_m : GROUP;
    const u32 within = index % in_group;
    if (rows == GROUP) return {int(first_m + within % GROUP), int(within / GROUP)};  // without a second division
    return {int(first_m + within % rows), int(within / rows)};
}

}  // namespace dgw
