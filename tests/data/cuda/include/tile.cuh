#pragma once

#include "factor.cuh"

__device__ __forceinline__ float scaled(float x) { return x * FACTOR; }

__device__ __forceinline__ void copy16(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
}
