// Copies of A and B, or of one of them, with lines at multiples of 128 bytes, so that the copy engine can step them: a chunk
// of k after the other, while those before are multiplied. All CTAs share the work on each chunk, so that a tile's operands
// are there once all have said so. The first two chunks are copied by the warps that will multiply, the others by six beside
// the one that issues; one more says when they are done, which takes as long as the last stores do.
//
// A warp copies WIDTH elements of HEIGHT lines at a time. They come to shared memory in the granules of 16 bytes in which
// global memory is read, without registers; a lane then takes its eight elements of a line out of two.
#pragma once

#include "dgw/async.cuh"
#include "dgw/grid_progress.cuh"
#include "dgw/shifted_words.cuh"
#include "dgw/tma.cuh"

namespace dgw {

// An operand of `lines` lines, `step` bytes apart, and its copy. ALONG_K: its lines run along k.
template <bool ALONG_K>
struct CopiedLines {
    static constexpr int WIDTH = 32 * GRANULE, HEIGHT = 4;
    static constexpr u32 LINE_BYTES = WIDTH * 2 + 16;  // with the granule behind, of which the last lane takes a part
    static constexpr u32 BYTES = HEIGHT * LINE_BYTES;
    static constexpr int ROUND = 64;  // elements that a line of a copy is a multiple of (alignment.py)
    static_assert(CHUNK == WIDTH, "a line along k has one part in a chunk");

    const char* from;
    char* to;
    int lines, width;
    i64 step;

    static __device__ __forceinline__ CopiedLines of(const char* from, char* to, int extent, int k, i64 ld) {
        return {from, to, ALONG_K ? extent : k, ALONG_K ? k : extent, ld * 2};
    }

    // The parts of a chunk of k.
    __device__ __forceinline__ u32 count() const {
        if (to == nullptr) return 0;
        return ALONG_K ? u32(lines + HEIGHT - 1) / HEIGHT : u32(width + WIDTH - 1) / WIDTH * (CHUNK / HEIGHT);
    }

    // Has part `part` of chunk `chunk` loaded to the shared address `slot`.
    __device__ __forceinline__ void load(u32 slot, int chunk, u32 part) const {
        const int lane = threadIdx.x % 32, line = line_of(chunk, part), col = col_of(chunk, part);
        const char* begin = from + line * step + col * 2;
        if (lane < HEIGHT) load_granule(slot + lane * LINE_BYTES + WIDTH * 2, begin + lane * step, WIDTH, line + lane, col);
#pragma unroll
        for (int l = 0; l < HEIGHT; ++l, begin += step)
            load_granule(slot + l * LINE_BYTES + lane * 16, begin, lane * GRANULE, line + l, col);
    }

    // Stores part `part` of chunk `chunk`, which is at `slot`, to the copy.
    __device__ __forceinline__ void store(u32 slot, int chunk, u32 part) const {
        const int lane = threadIdx.x % 32, line = line_of(chunk, part), col = col_of(chunk, part) + lane * GRANULE;
        const u32 before = u32(u64(from)) + u32(line) * u32(step);
        char* target = to + line * copied_step() + col * 2;
#pragma unroll
        for (int l = 0; l < HEIGHT; ++l, target += copied_step()) {
            u32 words[8];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                load_shared<16>(words + half * 4, slot + l * LINE_BYTES + (lane + half) * 16);
            shift_down(words, int((before + l * u32(step)) / 2 % GRANULE));
            store_global<16>(target, words, line + l < lines && col < width);
        }
    }

private:
    __device__ __forceinline__ i64 copied_step() const { return i64(u32(width + ROUND - 1) / ROUND) * (ROUND * 2); }
    static __device__ __forceinline__ int line_of(int chunk, u32 part) {
        return ALONG_K ? int(part) * HEIGHT : chunk * CHUNK + int(part % (CHUNK / HEIGHT)) * HEIGHT;
    }
    static __device__ __forceinline__ int col_of(int chunk, u32 part) {
        return ALONG_K ? chunk * CHUNK : int(part / (CHUNK / HEIGHT)) * WIDTH;
    }

    // The granule of element `first` from `begin` on, which is at `line` and `col`; zeros for what of it is behind the line,
    // which may not be in memory.
    __device__ __forceinline__ void load_granule(u32 target, const char* begin, int first, int line, int col) const {
        const int before = elements_before(begin), left = width - col - first + before;
        copy_async_part(target, begin + (first - before) * 2, line < lines ? min(max(left * 2, 0), 16) : 0);
    }
};

// Both operands, and the warps of all CTAs that copy them. `to` of an operand that is read in place: null.
struct CopyAhead {
    using PartsA = CopiedLines<K_MAJOR_A>;
    using PartsB = CopiedLines<K_MAJOR_B>;
    static constexpr int WARPS = 6;
    static constexpr int SLOTS = COPY_AHEAD ? STAGING_BYTES / WARPS / PartsA::BYTES : 1;  // where D waits, later
    static_assert(SLOTS > 0, "a warp copies a part at a time");
    static constexpr int AT_ONCE = 2;  // chunks that the warps copy which then multiply
    static constexpr u32 FIRST_BYTES = AT_ONCE * PartsA::BYTES;  // of shared memory for each of these (alignment.py)
    static constexpr u32 MEETING = 4;  // named barrier: these chunks have been copied

    PartsA a;
    PartsB b;
    GridProgress progress;
    int chunks;
    u32 barriers;  // two that the warps have copied a chunk, and two that this has been told, for every other chunk each

    // How many chunks are there when those before `there` are.
    __device__ __forceinline__ int next(int there) const { return max(there + 1, min(AT_ONCE, chunks)); }

    // The first chunks, by the first `warps` warps of the CTA. `shared`: AT_ONCE slots for each, which are free afterwards.
    __device__ __forceinline__ void begin(u32 shared, u32 warps) const {
        const u32 warp = threadIdx.x / 32, slots = shared + warp * FIRST_BYTES;
        const u32 some = a.count(), count = some + b.count();
#pragma unroll 1
        for (u32 part = warp * gridDim.x + blockIdx.x; part < count; part += gridDim.x * warps) {
            if (part < some)
                copy_at_once(a, slots, part);
            else
                copy_at_once(b, slots, part - some);
        }
        publish_to_engines();  // which have the slots next
        meet(MEETING, (warps + WARPS + 1) * 32);
    }

    // One thread, before barriers are published.
    __device__ __forceinline__ void open() const {
        for (int chunk = 0; chunk < 2; ++chunk) {
            barrier_init(done(chunk), WARPS);
            barrier_init(told(chunk), 1);
        }
    }

    // The others, by WARPS warps, of which this one is number `warp`. `staging`: the shared memory that they have.
    // `multiplying`: the warps that copy the first chunks.
    __device__ __forceinline__ void copy(u32 staging, u32 warp, u32 multiplying) const {
        const u32 slots = staging + warp * SLOTS * PartsA::BYTES, last = slots + (SLOTS - 1) * PartsA::BYTES;
        const u32 some = a.count(), count = some + b.count();
        Place ahead = {AT_ONCE, warp * gridDim.x + blockIdx.x};
        ahead.settle(count);
        Place here = ahead;
        meet(MEETING, (multiplying + WARPS + 1) * 32);  // the first ones go first
#pragma unroll 1
        for (u32 slot = slots; slot <= last; slot += PartsA::BYTES) load(slot, ahead, some, count);
        u32 slot = slots;
#pragma unroll 1
        for (int chunk = AT_ONCE; chunk < chunks; ++chunk) {
#pragma unroll 1
            for (; here.chunk == chunk; here.advance(count)) {
                wait_for_copies<SLOTS - 1>();
                __syncwarp();
                if (here.part < some)
                    a.store(slot, chunk, here.part);
                else
                    b.store(slot, chunk, here.part - some);
                __syncwarp();
                load(slot, ahead, some, count);
                slot = slot == last ? slots : slot + PartsA::BYTES;
            }
            __syncwarp();
            wait(told(chunk), phase(chunk - 2));  // else the barrier would count warps of two chunks
            if (elected()) arrive(done(chunk));
        }
    }

    // One more warp: says when chunks have been copied here.
    __device__ __forceinline__ void tell(u32 multiplying) const {
        meet(MEETING, (multiplying + WARPS + 1) * 32);
        if (!elected()) return;
        progress.reach(next(0) - 1);
        for (int chunk = AT_ONCE; chunk < chunks; ++chunk) {
            wait(done(chunk), phase(chunk));
            progress.reach(chunk);
            arrive(told(chunk));
        }
    }

    // Waits until the shared memory is not needed any more.
    __device__ __forceinline__ void wait_for_end() const { wait(told(chunks - 1), phase(chunks - 1)); }

private:
    // A chunk, and of all its parts the next one of a warp. Parts are dealt to the warps of all CTAs in turn.
    struct Place {
        int chunk;
        u32 part;

        __device__ __forceinline__ void advance(u32 count) {
            part += gridDim.x * WARPS;
            settle(count);
        }
        __device__ __forceinline__ void settle(u32 count) {
            for (; part >= count; part -= count) ++chunk;
        }
    };

    __device__ __forceinline__ u32 done(int chunk) const { return barriers + u32(chunk % 2) * 8; }
    __device__ __forceinline__ u32 told(int chunk) const { return barriers + u32(chunk % 2) * 8 + 16; }

    // Parity of the phase that a chunk ends of its barriers; for the first ones, of a phase that has ended.
    static __device__ __forceinline__ u32 phase(int chunk) { return u32((chunk - AT_ONCE) >> 1) & 1; }

    // Part `part` of the first chunks, all of which are under way at the same time.
    template <class Parts>
    __device__ __forceinline__ void copy_at_once(const Parts& parts, u32 slots, u32 part) const {
#pragma unroll 1
        for (int chunk = 0; chunk < next(0); ++chunk) parts.load(slots + chunk * Parts::BYTES, chunk, part);
        commit_copies();
        wait_for_copies<0>();
        __syncwarp();
#pragma unroll 1
        for (int chunk = 0; chunk < next(0); ++chunk) parts.store(slots + chunk * Parts::BYTES, chunk, part);
        __syncwarp();
    }

    // Has the part at `place` loaded, if there is one, and goes on to the next.
    __device__ __forceinline__ void load(u32 slot, Place& place, u32 some, u32 count) const {
        if (place.chunk < chunks) {
            if (place.part < some)
                a.load(slot, place.chunk, place.part);
            else
                b.load(slot, place.chunk, place.part - some);
            place.advance(count);
        }
        commit_copies();  // none, too: so many groups are under way whatever is left
    }
};

}  // namespace dgw
