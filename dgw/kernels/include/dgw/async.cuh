// Asynchronous copies from global to shared memory (cp.async, sm_80 and newer).
#pragma once

#include "dgw/memory.cuh"

namespace dgw {

// BYTES (4, 8 or 16) to the shared address `target`.
template <int BYTES>
__device__ __forceinline__ void copy_async(u32 target, const void* source) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(source) : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" ::"r"(target), "l"(source), "n"(BYTES)
                     : "memory");
}

// The first `bytes` of 16 bytes, and zeros behind them; without any, no access to `source`.
__device__ __forceinline__ void copy_async_part(u32 target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}

// BYTES; zeros, without an access to `source`, when `ok` is false.
template <int BYTES>
__device__ __forceinline__ void copy_async_or_zeros(u32 target, const void* source, bool ok) {
    if constexpr (BYTES == 16)
        copy_async_part(target, source, ok ? 16 : 0);
    else
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(BYTES),
                     "r"(ok ? BYTES : 0)
                     : "memory");
}

// BYTES consecutive bytes of a row in pieces of PIECE bytes. Unless they are WHOLE, only the first `available` elements
// of T exist.
template <Type T, int BYTES, int PIECE, bool WHOLE>
__device__ __forceinline__ void copy_row_part_async(u32 target, const char* source, int available) {
#pragma unroll
    for (int byte = 0; byte < BYTES; byte += PIECE) {
        if constexpr (WHOLE)
            copy_async<PIECE>(target + byte, source + byte);
        else
            copy_async_or_zeros<PIECE>(target + byte, source + byte, byte / size_of(T) < available);
    }
}

// Closes the group of this thread's copies since the last call.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups are still under way.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace dgw
