// Copies of A and B, or of one of them, with lines at multiples of 128 bytes, so that the copy engine can step them: a chunk
// of k after the other, while those before are multiplied. All CTAs share the work on each chunk, so that a tile's operands
// are there once all have said so. The first two chunks are copied by the warps that will multiply, the others by two beside
// the one that issues; one more says when they are done, which takes as long as the last stores do.
#pragma once

#include "dgw/copied_lines.cuh"
#include "dgw/grid_progress.cuh"
#include "dgw/tma.cuh"

namespace dgw {

// Both operands, and the warps of all CTAs that copy them. `to` of an operand that is read in place: null.
struct CopyAhead {
    using PartsA = CopiedLines<K_MAJOR_A, FIRST_A, STEP_A>;
    using PartsB = CopiedLines<K_MAJOR_B, FIRST_B, STEP_B>;
    static constexpr int WARPS = 2;
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

    // The first chunks, by the first `warps` warps of the CTA: has as many parts loaded as there are warps, before anything
    // else, to `shared`, of which each warp has FIRST_BYTES until all have ended what follows.
    __device__ __forceinline__ void begin(u32 shared, u32 warps) const {
        const u32 warp = threadIdx.x / 32;
        if (warp < warps) load_first(shared + warp * FIRST_BYTES, warp * gridDim.x + blockIdx.x);
    }

    // Stores these, and copies what is left of the first chunks.
    __device__ __forceinline__ void go_on(u32 shared, u32 warps) const {
        const u32 warp = threadIdx.x / 32, slots = shared + warp * FIRST_BYTES;
        const u32 some = a.count(), count = some + b.count();
#pragma unroll 1
        for (u32 part = warp * gridDim.x + blockIdx.x; part < count;) {
            wait_for_copies<0>();
            __syncwarp();
            if (part < some)
                store_first(a, slots, part);
            else
                store_first(b, slots, part - some);
            __syncwarp();
            part += gridDim.x * warps;
            load_first(slots, part);
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

    // Has a part loaded of both operands' parts, of which A has the first `some`: the same instructions for both.
    __device__ __forceinline__ void load_part(u32 slot, int chunk, u32 part, u32 some) const {
        const bool first = part < some;
        const Lines lines = first ? Lines(a) : Lines(b);
        lines.load(slot, first ? PartsA::at(chunk, part) : PartsB::at(chunk, part - some));
    }

    // Has part `part` of each of the first chunks loaded, if there is one.
    __device__ __forceinline__ void load_first(u32 slots, u32 part) const {
        const u32 some = a.count();
        if (part >= some + b.count()) return;
#pragma unroll 1
        for (int chunk = 0; chunk < next(0); ++chunk) load_part(slots + chunk * PartsA::BYTES, chunk, part, some);
        commit_copies();
    }

    template <class Parts>
    __device__ __forceinline__ void store_first(const Parts& parts, u32 slots, u32 part) const {
#pragma unroll 1
        for (int chunk = 0; chunk < next(0); ++chunk) parts.store(slots + chunk * Parts::BYTES, chunk, part);
    }

    // Has the part at `place` loaded, if there is one, and goes on to the next.
    __device__ __forceinline__ void load(u32 slot, Place& place, u32 some, u32 count) const {
        if (place.chunk < chunks) {
            load_part(slot, place.chunk, place.part, some);
            place.advance(count);
        }
        commit_copies();  // none, too: so many groups are under way whatever is left
    }
};

}  // namespace dgw
