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
    static constexpr int ELEMENTS = CHUNK / size_of(T);
    static constexpr int CHUNKS_IN_ROW = (K_MAJOR ? DEPTH : EXTENT) / ELEMENTS;
    static constexpr u32 ROW = CHUNKS_IN_ROW * CHUNK;
    static constexpr int COPIES = EXTENT * DEPTH / ELEMENTS / THREADS;
    static constexpr int COPY_ROWS = THREADS / CHUNKS_IN_ROW;
    static constexpr u32 BYTES = EXTENT * DEPTH * size_of(T);

    static __device__ __forceinline__ u32 twist(u32 row) {
        if constexpr (SINGLE) return row % 4 * 32;
        if constexpr (ROW >= 128) return row % 8 * CHUNK;
        return row * ROW / 128 * CHUNK % ROW;
    }

    // Address in the tile of byte `byte` of row `row`.
    static __device__ __forceinline__ u32 place(u32 row, u32 byte) { return row * ROW + (byte ^ twist(row)); }

    const char* from;        // this thread's first copy; the others lie in the same column, COPY_ROWS rows apart
    u32 target;              // and where it goes
    int outer_left, k_left;  // elements from there to the edges of the matrix

    // Begins with the tile at m or n = `outer` and k = 0.
    __device__ __forceinline__ void begin(const char* source, i64 ld, int outer, int extent, int k) {
        const u32 row = threadIdx.x / CHUNKS_IN_ROW, chunk = threadIdx.x % CHUNKS_IN_ROW;
        const i64 first_row = (K_MAJOR ? outer : 0) + int(row);
        const int first_col = (K_MAJOR ? 0 : outer) + int(chunk) * ELEMENTS;
        from = source + (first_row * ld + first_col) * size_of(T);
        target = place(row, chunk * CHUNK);
        outer_left = extent - outer - int(K_MAJOR ? row : chunk * ELEMENTS);
        k_left = k - int(K_MAJOR ? chunk * ELEMENTS : row);
    }

    // Copies one tile to `shared`; what lies beyond the matrix becomes zero. The next call copies the next tile along k.
    __device__ __forceinline__ void fetch(u32 shared, i64 ld) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int available = i * COPY_ROWS < (K_MAJOR ? outer_left : k_left) ? (K_MAJOR ? k_left : outer_left) : 0;
            const char* source = from + i * (COPY_ROWS * ld * size_of(T));
            const u32 to = shared + (target ^ twist(i * COPY_ROWS)) + i * COPY_ROWS * ROW;
            if constexpr (ASYNCHRONOUS) {
                copy_row_part_async<T, CHUNK, VEC * size_of(T)>(to, source, available);
            } else {
                u32 words[CHUNK / 4];
                load_row_part<T, CHUNK, VEC * size_of(T)>(words, source, available);
                store_shared<CHUNK>(to, words);
            }
        }
        from += DEPTH * (K_MAJOR ? 1 : ld) * size_of(T);
        k_left -= DEPTH;
    }
};

}  // namespace dgw
