// Launches that overlap (programmatic dependent launch, sm_90): the next one starts where this one leaves room, before this
// one has ended, and waits itself for what this one writes.
#pragma once

namespace dgw {

// The next launch may start once every CTA has come here or ended. Without one that overlaps, nothing happens.
__device__ __forceinline__ void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the launch before has ended, and what it wrote is there for the copy engine, too.
__device__ __forceinline__ void wait_for_launch_before() {
    asm volatile("griddepcontrol.wait;\n\tfence.proxy.async.global;" ::: "memory");
}

}  // namespace dgw
