// C (M x N, f16) = A (M x K) B (K x N): a ring of cp.async stages, ldmatrix on swizzled tiles, mma.sync, and an epilogue
// through shared memory. 64 x 64 tiles, 4 warps of 32 x 32. K and N are multiples of 8.
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 32, STAGES = 3;
constexpr int PAD = 72;  // columns of a row of the output staging tile

struct Stage {
    __align__(128) half a[BM * BK];
    __align__(128) half b[BK * BN];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void copy16(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}

__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;");
}

template <int LEFT>
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

// Element offset of 16-byte chunk `chunk` of row `row`: chunks change places so that ldmatrix meets all banks.
__device__ __forceinline__ int swizzle_a(int row, int chunk) {
    return row * BK + ((chunk ^ ((row >> 1) & 3)) << 3);
}

__device__ __forceinline__ int swizzle_b(int row, int chunk) {
    return row * BN + ((chunk ^ (row & 7)) << 3);
}

__device__ __forceinline__ void load_a(unsigned (&r)[4], const half* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(from)));
}

__device__ __forceinline__ void load_b(unsigned (&r)[4], const half* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(from)));
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load_stage(Stage& stage, const half* A, const half* B, int m0, int n0, int k0, int M,
                                           int N, int K) {
    for (int i = threadIdx.x; i < BM * BK / 8; i += 128) {
        int row = i / (BK / 8), chunk = i % (BK / 8), k = k0 + chunk * 8;
        bool inside = m0 + row < M && k < K;
        copy16(&stage.a[swizzle_a(row, chunk)], inside ? A + (size_t)(m0 + row) * K + k : A, inside ? 16 : 0);
    }
    for (int i = threadIdx.x; i < BK * BN / 8; i += 128) {
        int row = i / (BN / 8), chunk = i % (BN / 8), n = n0 + chunk * 8;
        bool inside = k0 + row < K && n < N;
        copy16(&stage.b[swizzle_b(row, chunk)], inside ? B + (size_t)(k0 + row) * N + n : B, inside ? 16 : 0);
    }
}

extern "C" __global__ void __launch_bounds__(128) ring(const half* A, const half* B, half* C, int M, int N, int K) {
    extern __shared__ __align__(128) unsigned char memory[];
    Stage* stages = reinterpret_cast<Stage*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int tiles = (K + BK - 1) / BK;
    float acc[2][4][4];
    for (int i = 0; i < 32; ++i) (&acc[0][0][0])[i] = 0.0f;

    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) load_stage(stages[s], A, B, m0, n0, s * BK, M, N, K);
        commit();
    }
    for (int t = 0; t < tiles; ++t) {
        wait<STAGES - 2>();
        __syncthreads();  // everybody's copies have landed, and nobody reads the stage that is filled next
        if (t + STAGES - 1 < tiles)
            load_stage(stages[(t + STAGES - 1) % STAGES], A, B, m0, n0, (t + STAGES - 1) * BK, M, N, K);
        commit();
        const Stage& stage = stages[t % STAGES];
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a[2][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                load_a(a[i], &stage.a[swizzle_a(wm + i * 16 + lane % 16, k / 8 + lane / 16)]);
#pragma unroll
            for (int j = 0; j < 2; ++j)
                load_b(b[j], &stage.b[swizzle_b(k + lane % 16, (wn + j * 16) / 8 + lane / 16)]);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    wait<0>();
    __syncthreads();  // the stages are free

    half* out = reinterpret_cast<half*>(memory);
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h) {
                const half2 two = __floats2half2_rn(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
                const int row = wm + i * 16 + h * 8 + lane / 4;
                *reinterpret_cast<half2*>(&out[row * PAD + wn + j * 8 + lane % 4 * 2]) = two;
            }
    __syncthreads();  // the tile is complete
    for (int i = threadIdx.x; i < BM * BN / 8; i += 128) {
        int row = i / (BN / 8), column = i % (BN / 8) * 8;
        if (m0 + row < M && n0 + column < N) {
            const uint4 eight = *reinterpret_cast<const uint4*>(&out[row * PAD + column]);
            *reinterpret_cast<uint4*>(&C[(size_t)(m0 + row) * N + n0 + column]) = eight;
        }
    }
}
