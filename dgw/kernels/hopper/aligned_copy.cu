// aligned_copy: operands with lines at multiples of 128 bytes, so that the copy engine can step them, from any others.
// Blocks of y 0 copy the first operand, of y 1 the second. A lane writes 16 bytes, at the same place of LINES lines.
// What it reads lies across the granules of 16 bytes in which global memory is loaded, by a distance that a line has in
// common: a lane loads the two granules that it needs parts of (the lane beside it loads the second one too, so L1 has
// it) and shifts them. Loads of single elements would be four times as many, each of as many sectors.
//
// The kernel that multiplies starts where these blocks leave an SM, and waits for the last of them (wgmma_tile.cuh).
#include "dgw/dependent_launch.cuh"
#include "dgw/memory.cuh"

using namespace dgw;

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

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    aligned_copy(const char* from_0, const char* from_1, char* to_0, char* to_1, int lines_0, int lines_1, int width_0,
                 int width_1, i64 ld_0, i64 ld_1) {
    let_next_launch_start();
    const bool first = blockIdx.y == 0;
    const char* const from = first ? from_0 : from_1;
    char* const to = first ? to_0 : to_1;
    const int lines = first ? lines_0 : lines_1, width = first ? width_0 : width_1;
    const i64 step = (first ? ld_0 : ld_1) * 2;
    const char* const end = from + (lines - 1) * step + i64(width) * 2;

    // Parts of 128 bytes by LINES lines, eight lanes each; their number fits 32 bits where the copy fits memory.
    const u32 across = (u32(width) + 63) / 64;
    const u32 parts = (u32(lines) + LINES - 1) / LINES * across;
    for (u32 part = (blockIdx.x * THREADS + threadIdx.x) / 8; part < parts; part += gridDim.x * (THREADS / 8)) {
        const u32 line = part / across * LINES;
        const u32 col = part % across * 64 + threadIdx.x % 8 * 8;
        const int here = min(lines - int(line), LINES);
        const int available = max(width - int(col), 0);

        u32 words[LINES][8];
        int shift[LINES];
        const char* source = from + line * step + u64(col) * 2;
#pragma unroll
        for (int l = 0; l < LINES; ++l, source += step)
            shift[l] = load(words[l], source, l < here ? available : 0, from, end);

        u32 keep[4];  // what exists of each word
#pragma unroll
        for (int w = 0; w < 4; ++w) keep[w] = available > 2 * w + 1 ? ~0u : available > 2 * w ? 0xffffu : 0;
        char* target = to + (u64(line) * across * 64 + col) * 2;
#pragma unroll
        for (int l = 0; l < LINES; ++l, target += u64(across) * 128) {
            shift_down(words[l], shift[l]);
#pragma unroll
            for (int w = 0; w < 4; ++w) words[l][w] &= keep[w];
            store_global<16>(target, words[l], l < here);
        }
    }
}
