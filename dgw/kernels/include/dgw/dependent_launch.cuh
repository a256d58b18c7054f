// Launches that overlap (programmatic dependent launch, sm_90): the next one starts where this one leaves room, before this
// one has ended, and waits itself for what this one writes: for all of it, or for some of it by a count in global memory.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

// What was written by other threads is there for the copy engine, too.
__device__ __forceinline__ void pass_to_copy_engine() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// The next launch may start once every CTA has come here or ended. Without one that overlaps, nothing happens.
__device__ __forceinline__ void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the launch before has ended.
__device__ __forceinline__ void wait_for_launch_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    pass_to_copy_engine();
}

// All threads of a block: what they have written until now may be read by those who see the block counted in `count`.
__device__ __forceinline__ void say_done(u32* count) {
    pass_to_copy_engine();
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("fence.acq_rel.gpu;\n\tred.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
}

// Waits until `blocks` have been counted in `count`.
__device__ __forceinline__ void wait_for_blocks(const u32* count, u32 blocks) {
    u32 found;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
    while (found < blocks);
    pass_to_copy_engine();
}

}  // namespace dgw
