// Barriers in shared memory that count arrivals and bytes (mbarrier, sm_90), also those of other CTAs of a cluster.
#pragma once

#include "dgw/memory.cuh"

namespace dgw {

// A phase ends after `arrivals` arrivals and as many bytes as were announced.
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other CTAs of the cluster.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival, and the announcement of `bytes` that copies will bring.
__device__ __forceinline__ void arrive_and_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The shared address `local` as CTA `rank` of the cluster has it.
__device__ __forceinline__ u32 address_in(u32 local, u32 rank) {
    u32 remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    return remote;
}

__device__ __forceinline__ void arrive_at(u32 barrier, u32 rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(barrier, rank)) : "memory");
}

// Waits until the phase of parity `parity` has ended. A barrier that nobody has used is in phase 0, and the phase before
// it, of parity 1, counts as ended.
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Where a warp is in a ring of SLOTS shared-memory tiles: the slot, and the parity of the round. It goes on over all tiles
// of D and is never reset.
template <int SLOTS>
struct RingPosition {
    u32 slot = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        const bool wraps = ++slot == SLOTS;
        slot = wraps ? 0 : slot;
        parity ^= u32(wraps);
    }

    __device__ __forceinline__ void skip(u32 count) {
        const u32 moved = slot + count;
        slot = moved % SLOTS;
        parity ^= moved / SLOTS % 2;
    }
};

// Named barrier `name` (1 to 15) of `threads` threads of the CTA.
__device__ __forceinline__ void meet(u32 name, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all CTAs of the cluster say that they are here, and later wait until all have said so. Barriers that were
// published before are ready then.
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Four words to the shared address `target` of another CTA; their bytes count at its barrier `barrier`.
__device__ __forceinline__ void send(u32 target, u32 barrier, const float (&values)[4]) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(target),
        "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]), "r"(barrier)
        : "memory");
}

// One lane of the warp, the same in every call.
__device__ __forceinline__ bool elected() {
    u32 chosen;
    asm volatile(
        "{ .reg .pred one;\n"
        "elect.sync _|one, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, one; }"
        : "=r"(chosen));
    return chosen != 0;
}

// Moves registers between warpgroups; every warp of a warpgroup calls it.
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace dgw
