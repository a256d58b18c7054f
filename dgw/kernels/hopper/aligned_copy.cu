// aligned_copy: operands with lines at multiples of 128 bytes, so that the copy engine can step them, from any others.
// A lane writes 16 bytes, at the same place of LINES lines. What it reads lies across the granules of 16 bytes in which
// global memory is loaded, by a distance that a line has in common: a lane loads the two granules that it needs parts of
// (the lane beside it loads the second one too, so L1 has it) and shifts them. Loads of single elements would be four
// times as many, each of as many sectors.
//
// aligned_copy: the kernel that multiplies starts where these blocks leave an SM, and waits for the last of them.
// aligned_copy_in_chunks: that kernel runs beside these blocks. They copy what it needs first, CHUNK of k at a time, and
// each says when it has done its part of a chunk (wgmma_tile.cuh).
#include "dgw/dependent_launch.cuh"
#include "dgw/memory.cuh"

using namespace dgw;

constexpr int PIECE = 64;  // elements of a line, 128 bytes, that eight lanes copy

// Elements of two bytes `shift` to `shift` + 7 of the sixteen in `words`, in the first four words. 0 <= shift < 8.
__device__ __forceinline__ void shift_down(u32 (&words)[8], int shift) {
#pragma unroll
    for (int w = 0; w < 6; ++w) words[w] = shift & 4 ? words[w + 2] : words[w];
#pragma unroll
    for (int w = 0; w < 5; ++w) words[w] = shift & 2 ? words[w + 1] : words[w];
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = __funnelshift_r(words[w], words[w + 1], shift % 2 * 16);
}

// The eight elements from `address` on, of which `available` exist, somewhere in the sixteen of `words`; returns how
// many elements are before them. What is not in the operand, `from` to `end`, may not be in memory: near its ends the
// elements are loaded one by one.
__device__ __forceinline__ int load(u32 (&words)[8], const char* address, int available, const char* from,
                                    const char* end) {
    const int shift = u32(u64(address)) / 2 % 8;
    const char* granule = address - shift * 2;
    if (available <= 0 || (granule >= from && granule <= end - 32)) {
        load_global<16>(words, granule, available > 0);
        load_global<16>(words + 4, granule + 16, shift > 0 && shift + available > 8);
        return shift;
    }
#pragma unroll
    for (int w = 4; w < 8; ++w) words[w] = 0;
    load_row_part<F16, 16, 2>(words, address, available);
    return 0;
}

// An operand of `lines` lines, `step` bytes apart, and its copy. ALONG_K: its lines run along k.
template <bool ALONG_K>
struct Operand {
    const char* from;
    char* to;
    int lines, width;
    i64 step;

    // What is copied together: LINES lines by PIECE elements, of the lines and pieces from these on.
    struct Parts {
        int line, end;
        u32 piece, pieces;

        __device__ __forceinline__ u32 count() const { return (u32(max(end - line, 0)) + LINES - 1) / LINES * pieces; }
    };

    __device__ __forceinline__ u32 pieces() const { return (u32(width) + PIECE - 1) / PIECE; }
    __device__ __forceinline__ Parts all() const { return {0, lines, 0, pieces()}; }

    // Of the elements `begin` to `begin` + `size` of k.
    __device__ __forceinline__ Parts chunk(int begin, int size) const {
        if (!ALONG_K) return {begin, min(lines, begin + size), 0, pieces()};
        const u32 first = begin / PIECE, most = size / PIECE;
        return {0, lines, first, first < pieces() ? min(pieces() - first, most) : 0};
    }

    // Part `part` of `parts`, by eight lanes.
    __device__ __forceinline__ void copy(const Parts& parts, u32 part) const {
        const int line = parts.line + int(part / parts.pieces) * LINES, here = min(parts.end - line, LINES);
        const int col = int(parts.piece + part % parts.pieces) * PIECE + int(threadIdx.x % 8) * 8;
        const int available = max(width - col, 0);
        const char* const end = from + (lines - 1) * step + i64(width) * 2;

        u32 words[LINES][8];
        int shift[LINES];
        const char* source = from + line * step + i64(col) * 2;
#pragma unroll
        for (int l = 0; l < LINES; ++l, source += step)
            shift[l] = load(words[l], source, l < here ? available : 0, from, end);

        u32 keep[4];  // what exists of each word
#pragma unroll
        for (int w = 0; w < 4; ++w) keep[w] = available > 2 * w + 1 ? ~0u : available > 2 * w ? 0xffffu : 0;
        char* target = to + (i64(line) * pieces() * PIECE + col) * 2;
#pragma unroll
        for (int l = 0; l < LINES; ++l, target += pieces() * (PIECE * 2)) {
            shift_down(words[l], shift[l]);
#pragma unroll
            for (int w = 0; w < 4; ++w) words[l][w] &= keep[w];
            store_global<16>(target, words[l], l < here);
        }
    }
};

using First = Operand<ALONG_0>;
using Second = Operand<ALONG_1>;

// By all blocks: these parts of the first operand, and those of the second. Their numbers fit 32 bits where the copies
// fit memory.
__device__ __forceinline__ void copy_all(const First& first, const First::Parts& some, const Second& second,
                                         const Second::Parts& others) {
    const u32 split = some.count(), count = split + others.count();
    for (u32 part = (blockIdx.x * THREADS + threadIdx.x) / 8; part < count; part += gridDim.x * (THREADS / 8)) {
        if (part < split)
            first.copy(some, part);
        else
            second.copy(others, part - split);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    aligned_copy(const char* from_0, const char* from_1, char* to_0, char* to_1, int lines_0, int lines_1, int width_0,
                 int width_1, i64 ld_0, i64 ld_1) {
    let_next_launch_start();
    const First first = {from_0, to_0, lines_0, width_0, ld_0 * 2};
    const Second second = {from_1, to_1, lines_1, width_1, ld_1 * 2};
    copy_all(first, first.all(), second, second.all());
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    aligned_copy_in_chunks(const char* from_0, const char* from_1, char* to_0, char* to_1, int lines_0, int lines_1,
                           int width_0, int width_1, i64 ld_0, i64 ld_1, u32* done, int k) {
    let_next_launch_start();
    const First first = {from_0, to_0, lines_0, width_0, ld_0 * 2};
    const Second second = {from_1, to_1, lines_1, width_1, ld_1 * 2};
    for (int begin = 0; begin < k; begin += CHUNK) {
        copy_all(first, first.chunk(begin, CHUNK), second, second.chunk(begin, CHUNK));
        say_done(done + begin / CHUNK);
    }
}
