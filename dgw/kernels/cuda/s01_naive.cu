// naive: one thread computes one element of D and reads everything it needs from global memory.
//
// Neighbouring threads share a row of A or a column of B, and only the caches notice.
#include "dgw/output.cuh"

using namespace dgw;

extern "C" __global__ void __launch_bounds__(BX* BY)
    naive(const char* a, const char* b, const char* c, char* d, int m, int n, int k, i64 lda, i64 ldb, i64 ldc, i64 ldd,
          float alpha, float beta) {
    const int blocks_n = (n + BX - 1) / BX;
    const int row = int(blockIdx.x / u32(blocks_n)) * BY + threadIdx.y;
    const int col = int(blockIdx.x % u32(blocks_n)) * BX + threadIdx.x;
    if (row >= m || col >= n) return;

    // The next element along k lies one element further, or one leading dimension further.
    const i64 step_a = (K_MAJOR_A ? 1 : lda) * size_of(TYPE_A);
    const i64 step_b = (K_MAJOR_B ? 1 : ldb) * size_of(TYPE_B);
    const char* at = a + row * (K_MAJOR_A ? lda : 1) * size_of(TYPE_A);
    const char* bt = b + col * (K_MAJOR_B ? ldb : 1) * size_of(TYPE_B);

    float sum[1] = {0.0f};
#pragma unroll 4
    for (int i = 0; i < k; ++i) {
        u32 av, bv;
        load_global<size_of(TYPE_A)>(&av, at, true);
        load_global<size_of(TYPE_B)>(&bv, bt, true);
        sum[0] = fmaf(to_f32<TYPE_A>(av, 0), to_f32<TYPE_B>(bv, 0), sum[0]);
        at += step_a;
        bt += step_b;
    }

    sum[0] *= alpha;
    if constexpr (USE_C) add_row<TYPE_C, 1, 1>(sum, c + (row * ldc + col) * size_of(TYPE_C), 1, beta);
    store_row<TYPE_D, 1, 1>(d + (row * ldd + col) * size_of(TYPE_D), sum, 1);
}
