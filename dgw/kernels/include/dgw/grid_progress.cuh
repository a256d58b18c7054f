// How far CTAs of one launch are that all run at the same time, counted in global memory.
#pragma once

#include "dgw/memory.cuh"

namespace dgw {

// Counts, each in a line of L2 of its own, that are all alike before the first launch, and again after each. Number 0 stays
// as it was, number 1 counts CTAs that look at the others no more, and each from number 2 on those that have come to a point.
struct GridProgress {
    u32* counts;

    // One thread of a CTA, after a barrier: what the CTA has written until now may be read by those who see it counted.
    __device__ __forceinline__ void reach(int point) const {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count(2 + point)) : "memory");
    }

    // What the counts begin with.
    __device__ __forceinline__ u32 start() const { return load(count(0)); }

    // Waits until all CTAs have come to `point`; what they wrote is there for the copy engine, too.
    __device__ __forceinline__ void wait_for_all(int point, u32 start) const {
        while (int(load(count(2 + point)) - start - gridDim.x) < 0) {
        }
        pass_to_copy_engine();
    }

    // One thread of each CTA, which waits for none of the `points` any more. The last one has all counts begin anew.
    __device__ __forceinline__ void leave(int points, u32 start) const {
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(count(1)) : "memory");
        if (before + 1 != start + gridDim.x) return;
        for (int i = 0; i <= points; ++i)
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(count(1 + i)), "r"(start) : "memory");
    }

private:
    static constexpr int APART = 128 / 4;

    __device__ __forceinline__ u32* count(int number) const { return counts + number * APART; }

    static __device__ __forceinline__ u32 load(const u32* count) {
        u32 found;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
        return found;
    }
};

}  // namespace dgw
