// Global and shared memory accesses at their final width. PTX vectors of 16 bytes and volatile accesses are neither
// merged nor split by ptxas, so each of these is one instruction in PTX and one in SASS.
#pragma once

#include "dgw/types.cuh"

namespace dgw {

// BYTES of global memory, or zeros without an access when `ok` is false. Two bytes arrive in the low half of words[0].
template <int BYTES>
__device__ __forceinline__ void load_global(u32* words, const void* address, bool ok) {
    if constexpr (BYTES == 16) {
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %5, 0;\n"
            "mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
            "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"
            : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
            : "l"(address), "r"(u32(ok)));
    } else if constexpr (BYTES == 8) {
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %3, 0;\n"
            "mov.b32 %0, 0; mov.b32 %1, 0;\n"
            "@p ld.global.nc.v2.b32 {%0, %1}, [%2]; }"
            : "=&r"(words[0]), "=&r"(words[1])
            : "l"(address), "r"(u32(ok)));
    } else if constexpr (BYTES == 4) {
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %2, 0;\n"
            "mov.b32 %0, 0;\n"
            "@p ld.global.nc.b32 %0, [%1]; }"
            : "=&r"(words[0])
            : "l"(address), "r"(u32(ok)));
    } else {
        u16 half;
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %2, 0;\n"
            "mov.b16 %0, 0;\n"
            "@p ld.global.nc.b16 %0, [%1]; }"
            : "=&h"(half)
            : "l"(address), "r"(u32(ok)));
        words[0] = half;
    }
}

// BYTES to global memory when `ok`: a predicate of the one instruction, not a branch around it.
template <int BYTES>
__device__ __forceinline__ void store_global(void* address, const u32* words, bool ok) {
    if constexpr (BYTES == 16)
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %5, 0;\n"
            "@p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(address),
            "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(u32(ok))
            : "memory");
    else if constexpr (BYTES == 8)
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %3, 0;\n"
            "@p st.global.v2.b32 [%0], {%1, %2}; }" ::"l"(address),
            "r"(words[0]), "r"(words[1]), "r"(u32(ok))
            : "memory");
    else if constexpr (BYTES == 4)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n@p st.global.b32 [%0], %1; }" ::"l"(address),
                     "r"(words[0]), "r"(u32(ok))
                     : "memory");
    else if constexpr (BYTES == 2)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n@p st.global.b16 [%0], %1; }" ::"l"(address),
                     "h"(u16(words[0])), "r"(u32(ok))
                     : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n@p st.global.u8 [%0], %1; }" ::"l"(address),
                     "r"(words[0]), "r"(u32(ok))
                     : "memory");
}

// The same for what nobody reads again: L2 gives its place away first (st.cs).
template <int BYTES>
__device__ __forceinline__ void store_global_once(void* address, const u32* words, bool ok) {
    static_assert(BYTES == 4, "as rows of D are stored");
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;\n@p st.global.cs.b32 [%0], %1; }" ::"l"(address), "r"(words[0]),
                 "r"(u32(ok))
                 : "memory");
}

// BYTES consecutive bytes of a row, loaded in pieces of PIECE bytes (what the operand's alignment allows). Of the
// elements of T from `address` on, the first `available` exist; the others become zeros and are not accessed.
template <Type T, int BYTES, int PIECE>
__device__ __forceinline__ void load_row_part(u32* words, const char* address, int available) {
#pragma unroll
    for (int byte = 0; byte < BYTES; byte += PIECE) {
        const bool ok = byte / size_of(T) < available;
        if constexpr (PIECE == 2) {
            u32 half;
            load_global<2>(&half, address + byte, ok);
            words[byte / 4] = byte % 4 == 0 ? half : words[byte / 4] | half << 16;
        } else {
            load_global<PIECE>(words + byte / 4, address + byte, ok);
        }
    }
}

// What was written to global memory before is there for the copy engine (TMA), too.
__device__ __forceinline__ void pass_to_copy_engine() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// threadIdx.x, read anew: what is computed from it is computed where it is used and not kept in registers across loops.
__device__ __forceinline__ u32 fresh_thread_index() {
    u32 index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

__device__ __forceinline__ u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }

template <int BYTES>
__device__ __forceinline__ void load_shared(u32* words, u32 address) {
    static_assert(BYTES == 16 || BYTES == 8, "shared memory is accessed in 16 or 8 bytes");
    if constexpr (BYTES == 16)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address)
                     : "memory");
}

__device__ __forceinline__ void load_shared_word(u32& word, u32 address) {
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
}

template <int BYTES>
__device__ __forceinline__ void store_shared(u32 address, const u32* words) {
    static_assert(BYTES == 16 || BYTES == 8, "shared memory is accessed in 16 or 8 bytes");
    if constexpr (BYTES == 16)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]),
                     "r"(words[2]), "r"(words[3])
                     : "memory");
    else
        asm volatile("st.volatile.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(words[0]), "r"(words[1])
                     : "memory");
}

}  // namespace dgw
