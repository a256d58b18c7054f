// What may be applied to a finished sum: activations and scales. All of it is chosen at compile time.
#pragma once

#include "dgw/output.cuh"

namespace dgw {

enum Activation { NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU };
enum Quantisation { NO_SCALE, SCALE_PER_TENSOR, SCALE_PER_ROW };

// x / (1 + e^-z), through powers of two.
__device__ __forceinline__ float times_sigmoid(float x, float z) {
    float power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(z * -1.4426950408889634f));
    return __fdividef(x, 1.0f + power);
}

// gelu: x Phi(x). gelu-tanh: x/2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). silu: x sigmoid(x).
// NaN stays NaN.
template <Activation A>
__device__ __forceinline__ float activate(float x) {
    if constexpr (A == RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (A == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    if constexpr (A == GELU_TANH) return times_sigmoid(x, x * fmaf(0.071354816273f * x, x, 1.5957691216f));
    if constexpr (A == SILU) return times_sigmoid(x, x);
    return x;
}

}  // namespace dgw
