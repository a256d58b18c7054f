// Sums of known values on their way to D, by rows or from registers: the warps have 16 rows by STORED_COLUMNS each, one below
// the other, and then the same again.
#include "dgw/direct_output.cuh"
#include "dgw/row_output.cuh"

using namespace dgw;

extern "C" __global__ void store_sums(const float* sums, const char* c, char* d, const char* bias, const char* residual,
                                      int m, int n, int row0, int col0, i64 ldc, i64 ldd, i64 ldr, float alpha,
                                      float beta) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float held[STORED_COLUMNS / 8][4];
#pragma unroll
    for (int j = 0; j < STORED_COLUMNS / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            held[j][e] = sums[(warp * 16 + e / 2 * 8 + lane / 4) * STORED_COLUMNS + j * 8 + lane % 4 * 2 + e % 2];
    const Epilogue epilogue = {c, bias, residual, nullptr, d, m, n, ldc, ldd, ldr, alpha, beta, 0.0f};
    const int row = row0 + int(warp) * 16;
#if BY_ROWS
    const BiasOfLane<STORED_COLUMNS> addends(epilogue, col0, lane);
    const RowOutput<STORED_COLUMNS> output = {{epilogue, shared_address(shared) + warp * StagedPieces<STORED_COLUMNS>::BYTES}};
    output.store(held, addends, row, col0);
    output.store(held, addends, row + int(blockDim.x) / 2, col0);  // in the same shared memory
#else
    store_directly<STORED_COLUMNS>(epilogue, held, row, col0, lane);
    store_directly<STORED_COLUMNS>(epilogue, held, row + int(blockDim.x) / 2, col0, lane);
#endif
}
