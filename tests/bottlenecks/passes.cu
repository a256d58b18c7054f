// What some kernels of this folder do in passes of their own over D: eight elements a thread.
#include "dgw/output.cuh"

using namespace dgw;

__device__ __forceinline__ i64 place() { return (blockIdx.x * i64(blockDim.x) + threadIdx.x) * 8; }

extern "C" __global__ void __launch_bounds__(256)
    add_bias(const char* from, const char* bias, char* to, int m, int n, float alpha) {
    const i64 at = place();
    if (at >= i64(m) * n) return;
    float values[8] = {};
    add_row<F16, 8, 8>(values, bias + at % n * 2, 8, 1.0f);
    add_row<F32, 8, 4>(values, from + at * 4, 8, alpha);
    store_row<F32, 8, 4>(to + at * 4, values, 8);
}

extern "C" __global__ void __launch_bounds__(256) apply_gelu(const char* from, char* to, int m, int n) {
    const i64 at = place();
    if (at >= i64(m) * n) return;
    float values[8] = {};
    add_row<F32, 8, 4>(values, from + at * 4, 8, 1.0f);
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = 0.5f * values[e] * (1.0f + erff(values[e] * 0.70710678f));
    store_row<F16, 8, 8>(to + at * 2, values, 8);
}

extern "C" __global__ void __launch_bounds__(256)
    sum_partials(const char* from, char* to, int m, int n, int parts, float alpha) {
    const i64 at = place();
    if (at >= i64(m) * n) return;
    float values[8] = {};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) add_row<F32, 8, 4>(values, from + (part * i64(m) * n + at) * 4, 8, 1.0f);
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] *= alpha;
    store_row<F16, 8, 8>(to + at * 2, values, 8);
}
