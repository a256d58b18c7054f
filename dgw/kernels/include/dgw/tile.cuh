// A tile of A or B in swizzled shared memory, and the copies that fill it: what the tensor-core stages start from.
#pragma once

#include "dgw/async.cuh"

namespace dgw {

// EXTENT of the operand's m or n by DEPTH of its k, as stored: rows of ROW bytes that run along k (K_MAJOR) or along m or
// n. A tensor-core load reads 16 bytes of eight consecutive rows; the XOR puts them into different slots of a 128-byte
// line. 32-bit elements that run along m or n are read one by one, four rows at a time, and need slots of 32 bytes.
template <Type T, bool K_MAJOR, int EXTENT, int DEPTH, int THREADS, int VEC, bool ASYNCHRONOUS>
struct Tile {
    static constexpr bool ALONG_K = K_MAJOR;
    static constexpr int SIZE = size_of(T);
    static constexpr bool SINGLE = SIZE == 4 && !K_MAJOR;  // read one by one
    static constexpr int CHUNK = 16;
    static constexpr int ELEMENTS = CHUNK / SIZE;
    static constexpr int ROWS = K_MAJOR ? EXTENT : DEPTH;
    static constexpr int CHUNKS_IN_ROW = (K_MAJOR ? DEPTH : EXTENT) / ELEMENTS;
    static constexpr u32 ROW = CHUNKS_IN_ROW * CHUNK;
    static constexpr u32 BYTES = ROWS * ROW;

    // One copy of all threads: ACROSS chunks of each of DOWN rows. As a rule ACROSS chunks are a line of 128 bytes, so
    // that the copies of a thread along a row differ by a constant.
    static constexpr int ENOUGH = THREADS / ROWS > 8 ? THREADS / ROWS : 8;
    static constexpr int ACROSS = CHUNKS_IN_ROW < ENOUGH ? CHUNKS_IN_ROW : ENOUGH;
    static constexpr int DOWN = THREADS / ACROSS;
    static constexpr int COPIES_IN_ROW = CHUNKS_IN_ROW / ACROSS;
    static constexpr int COPIES = ROWS / DOWN * COPIES_IN_ROW;

    static __device__ __forceinline__ u32 twist(u32 row) {
        if constexpr (SINGLE) return row % 4 * 32;
        if constexpr (ROW >= 128) return row % 8 * CHUNK;
        return row * ROW / 128 * CHUNK % ROW;
    }

    // Address in the tile of byte `byte` of row `row`.
    static __device__ __forceinline__ u32 place(u32 row, u32 byte) { return row * ROW + (byte ^ twist(row)); }

    const char* from;  // this thread's first copy of the next tile
    u32 target;        // and where it goes in slot 0
    int outer_left;    // rows or columns from the tile to the edge of the matrix

    __device__ __forceinline__ Tile(u32 shared)
        : target(shared + place(threadIdx.x / ACROSS, threadIdx.x % ACROSS * CHUNK)) {}

    // Goes on with the tile at m or n = `outer` and k = 0.
    __device__ __forceinline__ void begin(const char* source, i64 ld, int outer, int extent) {
        const i64 row = (K_MAJOR ? outer : 0) + int(threadIdx.x / ACROSS);
        const int col = (K_MAJOR ? 0 : outer) + int(threadIdx.x % ACROSS) * ELEMENTS;
        from = source + (row * ld + col) * SIZE;
        outer_left = extent - outer;
    }

    __device__ __forceinline__ bool inside() const { return outer_left >= EXTENT; }

    // Part PART of PARTS of the copies of one tile to the slot at byte `slot`. Unless the tile is WHOLE, what lies beyond
    // the matrix becomes zero: outer_left and k_left rows or columns of it exist. After the last part the tile that
    // follows along k is next.
    template <bool WHOLE, int PART = 0, int PARTS = 1>
    __device__ __forceinline__ void fetch(u32 slot, i64 ld, int k_left) {
        int rows_left = 0, cols_left = 0;  // from this thread's first element on
        if constexpr (!WHOLE) {
            const u32 thread = fresh_thread_index();
            rows_left = (K_MAJOR ? outer_left : k_left) - int(thread / ACROSS);
            cols_left = (K_MAJOR ? k_left : outer_left) - int(thread % ACROSS) * ELEMENTS;
        }
#pragma unroll(ASYNCHRONOUS ? COPIES : 1)  // copies through registers would take too many of them at once
        for (int i = COPIES * PART / PARTS; i < COPIES * (PART + 1) / PARTS; ++i) {
            const int row = i / COPIES_IN_ROW * DOWN, chunk = i % COPIES_IN_ROW * ACROSS;
            const int available = WHOLE ? ELEMENTS : row < rows_left ? cols_left - chunk * ELEMENTS : 0;
            const char* source = from + row * ld * SIZE + chunk * CHUNK;
            const u32 to = slot + (target ^ twist(row)) + row * ROW + chunk * CHUNK;
            if constexpr (ASYNCHRONOUS) {
                copy_row_part_async<T, CHUNK, VEC * SIZE, WHOLE>(to, source, available);
            } else {
                u32 words[CHUNK / 4];
                load_row_part<T, CHUNK, VEC * SIZE>(words, source, available);
                store_shared<CHUNK>(to, words);
            }
        }
        if constexpr (PART == PARTS - 1) from += DEPTH * (K_MAJOR ? 1 : ld) * SIZE;
    }
};

}  // namespace dgw
