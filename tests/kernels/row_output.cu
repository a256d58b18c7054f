// Sums of known values on their way to D, by the copy engine, by rows or from registers: the warps have 16 rows by
// STORED_COLUMNS each, one below the other, and then the same again. Rows of sums are ROWS_APART in D; HELD_BACK pieces of those
// of the first time are finished after the second has begun.
#define store_box store_box_of_the_engine
#define commit_stores commit_stores_of_the_engine
#define wait_for_sources wait_for_sources_of_the_engine
#define publish_to_engines publish_to_engines_that_are_there
#include "dgw/tma.cuh"
#undef store_box
#undef commit_stores
#undef wait_for_sources
#undef publish_to_engines

namespace dgw {

// What the copy engine does with a box of 16 rows. `map`: D, its rows and columns, the bytes from row to row, of a line of the
// box and of an element. Parts of 16 bytes are permuted by their address.
__device__ __forceinline__ void store_box(const TensorMap& map, int row, int col, u32 source) {
    const int lines = 16, line = int(map.opaque[4]), size = int(map.opaque[5]);
    for (int i = 0; i < lines && row + i < int(map.opaque[1]); ++i)
        for (int byte = 0; byte < line && col + byte / size < int(map.opaque[2]); byte += 16) {
            const u32 at = source + i * line + byte;
            u32 words[4];
            load_shared<16>(words, at ^ (at >> 7) % (line / 16) * 16);
            char* const target = reinterpret_cast<char*>(map.opaque[0]) + (row + i) * i64(map.opaque[3]) + col * size + byte;
            store_global<16>(target, words, true);
        }
}
__device__ __forceinline__ void commit_stores() {}
__device__ __forceinline__ void publish_to_engines() {}
template <int PENDING>
__device__ __forceinline__ void wait_for_sources() {}

}  // namespace dgw

#include "dgw/direct_output.cuh"
#include "dgw/row_output.cuh"
#include "dgw/staged_output.cuh"

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
    const int row = row0 + int(warp) * (16 * ROWS_APART), below = row + int(blockDim.x) / 2 * ROWS_APART;
    const u32 staging = shared_address(shared) + warp * StagedPieces<STORED_COLUMNS>::BYTES;
    const BiasOfLane<STORED_COLUMNS> addends(epilogue, col0, lane);
#if BY_ENGINE
    using Output = StagedOutput<STORED_COLUMNS, HELD_BACK>;
    constexpr int SIZE = size_of(TYPE_D);
    const TensorMap map = {{u64(d), u64(m), u64(n), u64(ldd * SIZE), u64(Output::Pieces::LINE), u64(SIZE)}};
    const Output output = {{epilogue, staging}, map};
    typename Output::Held late;
    output.store(held, addends, row, col0, lane);
    output.hold(late, held, addends, row, col0, lane);
#pragma unroll
    for (int i = 0; i < HELD_BACK; ++i) output.store_held(late, i, row, col0, lane);
    output.store(held, addends, below, col0, lane);
    output.hold(late, held, addends, below, col0, lane);
#pragma unroll
    for (int i = 0; i < HELD_BACK; ++i) output.store_held(late, i, below, col0, lane);
#elif BY_ROWS
    const RowOutput<STORED_COLUMNS, ROWS_APART> output = {{epilogue, staging}};
    output.store(held, addends, row, col0);
    output.store(held, addends, below, col0);  // in the same shared memory
#else
    store_directly<STORED_COLUMNS>(epilogue, held, row, col0, lane);
    store_directly<STORED_COLUMNS>(epilogue, held, below, col0, lane);
#endif
}
