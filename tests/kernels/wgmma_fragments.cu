// What a warpgroup loads of a tile of A as the copy engine left it in shared memory.
#include "dgw/wgmma_fragments.cuh"

using namespace dgw;

using Tile = WgmmaTile<K_MAJOR_A, BM, 1, LinesA, !K_MAJOR_A>;

extern "C" __global__ void load_fragments(const uint4* image, uint4* found) {
    __shared__ __align__(1024) uint4 shared[Tile::BYTES / 16];
    for (u32 i = threadIdx.x; i < Tile::BYTES / 16; i += 128) shared[i] = image[i];
    __syncthreads();
    FragmentsA<Tile, K_MAJOR_A, BM / 64> a;
    a.load(shared_address(shared), 0, threadIdx.x / 32, threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < BM / 64; ++i)
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
            found[(i * STEPS + step) * 128 + threadIdx.x] =
                make_uint4(a.of[i][step][0], a.of[i][step][1], a.of[i][step][2], a.of[i][step][3]);
}
