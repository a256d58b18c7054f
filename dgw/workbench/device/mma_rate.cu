// The ceiling of the mma.sync family: every warp repeats independent mma instructions on registers, nothing else.
//
// Per iteration a warp makes CHAINS products of 16x8xK with K = 16 (f16, bf16) or 8 (tf32), so 2*16*8*K*CHAINS FLOP.
// Results are stored under a condition that never holds, so that the compiler keeps the work.

typedef unsigned int u32;

constexpr int CHAINS = 8;

#define MMA(SHAPE, TYPES, A, B, C)                                                                                    \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "       \
                 "{%0,%1,%2,%3};"                                                                                     \
                 : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])                                                     \
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]))

#define RATE(NAME, SHAPE, TYPES, ONE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) NAME(u32 iterations, float* sink) {                             \
        const u32 bits = ONE ^ (threadIdx.x & 31u) << 3 ^ blockIdx.x % 7u;                                            \
        u32 a[4] = {bits, bits ^ 1u, bits ^ 2u, bits ^ 3u}, b[2] = {bits ^ 4u, bits ^ 5u};                            \
        float sums[CHAINS][4] = {};                                                                                   \
        for (u32 i = 0; i < iterations; ++i) {                                                                        \
            _Pragma("unroll") for (int chain = 0; chain < CHAINS; ++chain) MMA(SHAPE, TYPES, a, b, sums[chain]);      \
        }                                                                                                             \
        float total = 0.0f;                                                                                           \
        for (int chain = 0; chain < CHAINS; ++chain)                                                                  \
            total += sums[chain][0] + sums[chain][1] + sums[chain][2] + sums[chain][3];                               \
        if (total == -1.25f) *sink = total;                                                                           \
    }

RATE(rate_f16, "m16n8k16", "f16.f16", 0x2C003400u)
RATE(rate_bf16, "m16n8k16", "bf16.bf16", 0x3D803E80u)
RATE(rate_tf32, "m16n8k8", "tf32.tf32", 0x3E800000u)
