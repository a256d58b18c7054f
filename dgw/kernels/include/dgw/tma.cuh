// Copies of boxes between matrices in global memory and shared memory by the copy engine (TMA, sm_90). A tensor map says
// how the matrix lies; what is beyond its edges reads as zero and is not written.
#pragma once

#include "dgw/mbarrier.cuh"

namespace dgw {

struct alignas(64) TensorMap {
    u64 opaque[16];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box whose first element is at (`row`, `col`) of the stored matrix, to the shared address `target`. Its bytes count at
// `barrier`. The same box goes to the same place of every CTA of the cluster whose bit is set in `peers`, and counts there.
template <bool MULTICAST>
__device__ __forceinline__ void load_box(u32 target, const TensorMap& map, int row, int col, u32 barrier,
                                         unsigned short peers = 0) {
    if constexpr (MULTICAST)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
            "[%1, {%2, %3}], [%4], %5;" ::"r"(target),
            "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(peers)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                target),
            "l"(&map), "r"(col), "r"(row), "r"(barrier)
            : "memory");
}

// The box at the shared address `source` to (`row`, `col`) of the stored matrix.
__device__ __forceinline__ void store_box(const TensorMap& map, int row, int col, u32 source) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(col),
                 "r"(row), "r"(source)
                 : "memory");
}

// Closes the group of this thread's stores since the last call.
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but PENDING of this thread's groups of stores have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_for_sources() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and the tensor cores.
__device__ __forceinline__ void publish_to_engines() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace dgw
