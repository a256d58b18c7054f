#include <cuda_fp16.h>

#include "tile.cuh"

#ifndef TILE
#define TILE 1024
#endif

extern "C" __global__ void __launch_bounds__(128) mma(const __half* a, const __half* b, float* d) {
    __shared__ __align__(16) __half tile[TILE];
    for (int i = threadIdx.x; i < TILE; i += 128) tile[i] = __hadd(a[i], b[i]);
    __syncthreads();
    unsigned r[4], q[2];
    float c[4] = {};
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(tile)) + threadIdx.x % 32 * 16;
    copy16(address + 512, a);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(q[0]), "=r"(q[1]) : "r"(address));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(q[0]), "r"(q[1]));
    reinterpret_cast<float4*>(d)[threadIdx.x] = make_float4(scaled(c[0]), scaled(c[1]), scaled(c[2]), scaled(c[3]));
}
