// Sums as they are multiplied where the lines of B were read in phases: put in order, and given back as fragments hold them.
#include "dgw/column_order.cuh"

using namespace dgw;

extern "C" __global__ void put_in_order(const float* sums, float* ordered) {
    const u32 lane = threadIdx.x % 32;
    float held[TILE_EIGHTS][4];
#pragma unroll
    for (int j = 0; j < TILE_EIGHTS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) held[j][e] = sums[(e / 2 * 8 + lane / 4) * TILE_EIGHTS * 8 + j * 8 + lane % 4 * 2 + e % 2];
    order_columns<TILE_PHASES>(held, lane);
#pragma unroll
    for (int j = 0; j < TILE_EIGHTS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) ordered[(e / 2 * 8 + lane / 4) * TILE_EIGHTS * 8 + j * 8 + lane % 4 * 2 + e % 2] = held[j][e];
}
