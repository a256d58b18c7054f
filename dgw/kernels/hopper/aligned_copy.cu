// aligned_copy: operands with lines at multiples of 128 bytes, so that the copy engine can step them, from any others.
// A warp copies PIECES pieces of 512 bytes of a line at a time, 16 bytes a lane, of one operand or another.
//
// Global memory is loaded in granules of 16 bytes, across which what a lane stores lies, by a distance that the whole
// line has in common. The rest is in the next lane's granule, and comes from there. Which words are taken is decided once
// for a warp, not picked word by word: these blocks are as fast as they have few instructions.
//
// The kernel that multiplies starts where these blocks leave an SM, and waits for the last of them (wgmma_tile.cuh).
#include "dgw/dependent_launch.cuh"
#include "dgw/memory.cuh"

using namespace dgw;

constexpr int GRANULE = 8;           // elements
constexpr int PIECE = 32 * GRANULE;  // elements
constexpr int LINE = 64;             // elements that a line of the copy is a multiple of
using Granules = u32[PIECES + 1][4];

// The granule at `address`, of which the elements from `first` on lie in a line that has `width`. What is not in the line
// may not be in memory: it is zero, and not loaded.
__device__ __forceinline__ void load_elements(u32 (&words)[4], const char* address, int first, int width) {
#pragma unroll
    for (int e = 0; e < GRANULE; ++e) {
        u32 one;
        load_global<2>(&one, address + e * 2, first + e >= 0 && first + e < width);
        words[e / 2] = e % 2 == 0 ? one : words[e / 2] | one << 16;
    }
}

// The granules of a lane, moved down by SKIP words and `bits`, as the pieces of a line that they become. From the first
// element of the first piece on there are `width` more in the line, and `room` in the copy's.
template <int SKIP>
__device__ __forceinline__ void store_pieces(const Granules& granules, u32 bits, char* target, int width, int room) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        u32 words[8];
#pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = granules[i][w];
#pragma unroll
        for (int w = 0; w <= SKIP; ++w)  // the lane behind the last one is the first, with the next piece
            words[4 + w] = __shfl_sync(~0u, lane == 0 ? granules[i + 1][w] : granules[i][w], (lane + 1) % 32);
#pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = __funnelshift_r(words[SKIP + w], words[SKIP + w + 1], bits);
        if (width < (i + 1) * PIECE) {
            const int left = width - i * PIECE - lane * GRANULE;
#pragma unroll
            for (int w = 0; w < 4; ++w) words[w] &= left > 2 * w + 1 ? ~0u : left > 2 * w ? 0xffffu : 0;
        }
        store_global<16>(target + i * (PIECE * 2), words, i * PIECE + lane * GRANULE < room);
    }
}

// An operand, its copy, and the parts of PIECES pieces that its lines have.
struct Operand {
    const char* from;
    char* to;
    int lines, width;
    i64 step;  // bytes

    __device__ __forceinline__ u32 parts_of_line() const { return (u32(width) + PIECES * PIECE - 1) / (PIECES * PIECE); }
    __device__ __forceinline__ u32 parts() const { return lines * parts_of_line(); }

    // By one warp.
    __device__ __forceinline__ void copy(u32 part) const {
        const u32 along = parts_of_line(), line = part / along;
        const int col = int(part - line * along) * (PIECES * PIECE), copied = (width + LINE - 1) / LINE * LINE;
        const char* const begin = from + line * step;
        const int shift = int(u64(begin) / 2 % GRANULE);
        const char* const source = begin + (i64(col) - shift) * 2;
        const char* const end = from + (lines - 1) * step + i64(width) * 2;
        const bool inside = source >= from && source + (PIECES * PIECE + GRANULE) * 2 <= end;

        const int place = threadIdx.x % 32 * GRANULE;
        const int first = col + place - shift;   // element of the line
        const int last = place > 0 ? 0 : width;  // of the piece behind, only the first lane's granule is needed
        Granules granules;
        if (inside) {
#pragma unroll
            for (int i = 0; i <= PIECES; ++i)
                load_global<16>(granules[i], source + (i * PIECE + place) * 2, first + i * PIECE < (i < PIECES ? width : last));
        } else {
#pragma unroll
            for (int i = 0; i <= PIECES; ++i)
                load_elements(granules[i], source + (i * PIECE + place) * 2, first + i * PIECE, i < PIECES ? width : last);
        }
        char* const target = to + (i64(line) * copied + col + place) * 2;
        const u32 bits = shift % 2 * 16;
        switch (shift / 2) {
            case 0: store_pieces<0>(granules, bits, target, width - col, copied - col); break;
            case 1: store_pieces<1>(granules, bits, target, width - col, copied - col); break;
            case 2: store_pieces<2>(granules, bits, target, width - col, copied - col); break;
            default: store_pieces<3>(granules, bits, target, width - col, copied - col);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    aligned_copy(const char* from_0, const char* from_1, char* to_0, char* to_1, int lines_0, int lines_1, int width_0,
                 int width_1, i64 ld_0, i64 ld_1) {
    let_next_launch_start();
    const Operand one = {from_0, to_0, lines_0, width_0, ld_0 * 2}, other = {from_1, to_1, lines_1, width_1, ld_1 * 2};
    const u32 parts = one.parts(), all = parts + other.parts();  // 32 bits are enough where the copies fit memory
    for (u32 part = (blockIdx.x * THREADS + threadIdx.x) / 32; part < all; part += gridDim.x * (THREADS / 32)) {
        const bool is_first = part < parts;
        const Operand operand = {is_first ? one.from : other.from, is_first ? one.to : other.to,
                                 is_first ? one.lines : other.lines, is_first ? one.width : other.width,
                                 is_first ? one.step : other.step};
        operand.copy(is_first ? part : part - parts);
    }
}
