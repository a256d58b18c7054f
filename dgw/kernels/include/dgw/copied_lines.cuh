// Lines of an operand that begin anywhere in the granules of 16 bytes in which global memory is read, and their copy, of
// which the lines begin at multiples of 128 bytes. A warp copies WIDTH elements of HEIGHT lines at a time, a part: they come
// to shared memory in granules, without registers, and a lane then takes its eight elements of a line out of two. How far
// they are shifted is known when this is compiled, so that no instruction is spent on choosing words.
#pragma once

#include "dgw/async.cuh"

namespace dgw {

constexpr int GRANULE = 8;  // elements

// Where a part begins: its first line, and its first column.
struct Part {
    int line, col;
};

// `lines` lines of `width` elements, `step` bytes apart.
struct Lines {
    static constexpr int WIDTH = 32 * GRANULE, HEIGHT = 4;
    static constexpr u32 LINE_BYTES = WIDTH * 2 + 16;  // with the granule behind, of which the last lane takes a part
    static constexpr u32 BYTES = HEIGHT * LINE_BYTES;

    const char* from;
    int lines, width;
    i64 step;

    // Has a part loaded to the shared address `slot`. What is behind the end of a line is loaded like anything else, since
    // nobody reads it of the copy; but not what is behind the last line, which may not be in memory.
    __device__ __forceinline__ void load(u32 slot, Part part) const {
        const int lane = threadIdx.x % 32;
        const char* const begin = from + part.line * step + part.col * 2;
        const char* const behind = granule_of(begin + lane * step) + WIDTH * 2;  // of the line of the lane's number
        const u32 target = slot + lane * 16, target_behind = slot + lane * LINE_BYTES + WIDTH * 2;
        if (__builtin_expect(begin + (HEIGHT - 1) * step + (WIDTH + GRANULE) * 2 <= end(), 1)) {
            if (lane < HEIGHT) copy_async<16>(target_behind, behind);
            const char* from_lane = begin + lane * 16;
#pragma unroll
            for (int l = 0; l < HEIGHT; ++l, from_lane += step) copy_async<16>(target + l * LINE_BYTES, granule_of(from_lane));
        } else {
            if (lane < HEIGHT) copy_async_part(target_behind, behind, available(behind));
#pragma unroll 1
            for (int l = 0; l < HEIGHT; ++l) {
                const char* const granule = granule_of(begin + l * step) + lane * 16;
                copy_async_part(target + l * LINE_BYTES, granule, available(granule));
            }
        }
    }

private:
    static __device__ __forceinline__ const char* granule_of(const char* address) {
        return reinterpret_cast<const char*>(u64(address) / 16 * 16);
    }

    __device__ __forceinline__ const char* end() const { return from + (lines - 1) * step + i64(width) * 2; }

    // How many bytes of a granule are before the end of the operand.
    __device__ __forceinline__ int available(const char* granule) const {
        const i64 left = end() - granule;
        return left > 16 ? 16 : left > 0 ? int(left) : 0;
    }
};

// An operand and its copy, `to`; null where it is read in place. ALONG_K: its lines run along k. FIRST and STEP: how many
// elements of its granule are before the first line, and how many more before the next.
template <bool ALONG_K, int FIRST, int STEP>
struct CopiedLines : Lines {
    static constexpr int ROUND = 64;  // elements that a line of a copy is a multiple of (alignment.py)
    static_assert(CHUNK == WIDTH, "a line along k has one part in a chunk");

    char* to;

    static __device__ __forceinline__ CopiedLines of(const char* from, char* to, int extent, int k, i64 ld) {
        return {{from, ALONG_K ? extent : k, ALONG_K ? k : extent, ld * 2}, to};
    }

    // The parts of a chunk of k.
    __device__ __forceinline__ u32 count() const {
        if (to == nullptr) return 0;
        return ALONG_K ? u32(lines + HEIGHT - 1) / HEIGHT : u32(width + WIDTH - 1) / WIDTH * (CHUNK / HEIGHT);
    }

    // Part number `part` of chunk `chunk`.
    static __device__ __forceinline__ Part at(int chunk, u32 part) {
        if constexpr (ALONG_K) return {int(part) * HEIGHT, chunk * CHUNK};
        return {chunk * CHUNK + int(part % (CHUNK / HEIGHT)) * HEIGHT, int(part / (CHUNK / HEIGHT)) * WIDTH};
    }

    // Stores part `part` of chunk `chunk`, which is at `slot`, to the copy.
    __device__ __forceinline__ void store(u32 slot, int chunk, u32 part) const {
        if (part % 2 == 0)
            store_lines<0>(slot, chunk, part);
        else
            store_lines<HEIGHT>(slot, chunk, part);
    }

private:
    // Lines whose number modulo 8 is OF_EIGHT, and those behind them.
    template <int OF_EIGHT>
    __device__ __forceinline__ void store_lines(u32 slot, int chunk, u32 part) const {
        const Part place = at(chunk, part);
        const int lane = threadIdx.x % 32, line = place.line, col = place.col + lane * GRANULE;
        const i64 copied_step = i64(u32(width + ROUND - 1) / ROUND) * (ROUND * 2);
        char* target = to + line * copied_step + col * 2;
#pragma unroll
        for (int l = 0; l < HEIGHT; ++l, target += copied_step) {
            const int shift = (FIRST + (OF_EIGHT + l) * STEP) % GRANULE;  // known when this is compiled
            u32 words[8], shifted[4];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                load_shared<16>(words + half * 4, slot + l * LINE_BYTES + (lane + half) * 16);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const u32 low = words[w + shift / 2];
                shifted[w] = shift % 2 == 0 ? low : __funnelshift_r(low, words[w + shift / 2 + 1], 16);
            }
            store_global<16>(target, shifted, line + l < lines && col < width);
        }
    }
};

}  // namespace dgw
