// A good tensor-core kernel (f16, layout nn, 16-byte alignment): mma.sync fed by ldmatrix from a swizzled ring of tiles
// that asynchronous copies fill STAGES - 1 tiles ahead, fragments loaded one step ahead, tiles of D in groups of rows.
//
// Each defect below is one define. The kernels of this folder set at most one of them, or a size that is a bad choice.
#include "dgw/async.cuh"
#include "dgw/mma.cuh"
#include "dgw/output.cuh"
#include "dgw/tile_order.cuh"

using namespace dgw;

constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int TILES_M = WM / 16, TILES_N = WN / 8, STEPS = BK / 16;
constexpr u32 ROW_A = BK * 2, ROW_B = BN * 2, BYTES_A = BM * ROW_A, SLOT = BYTES_A + BK * ROW_B;

template <u32 ROW>
__device__ __forceinline__ u32 twist(u32 row) {
#if defined(NO_SWIZZLE)
    return 0;
#elif defined(HALF_SWIZZLE)
    return row % 2 * 16;
#else
    return ROW >= 128 ? row % 8 * 16 : row * ROW / 128 * 16 % ROW;
#endif
}

// ROWS rows of ROW bytes from `source`; of them `rows_left` rows and `cols_left` elements of each exist.
template <int ROWS, u32 ROW>
__device__ __forceinline__ void copy_tile(u32 shared, const char* source, i64 ld, int rows_left, int cols_left) {
#pragma unroll
    for (u32 i = 0; i < ROWS * ROW / 16 / THREADS; ++i) {
        const u32 piece = i * THREADS + threadIdx.x;
#if defined(COPIES_DOWN)
        const u32 row = piece % ROWS, byte = piece / ROWS * 16;  // neighbouring lanes take neighbouring rows
#else
        const u32 row = piece / (ROW / 16), byte = piece % (ROW / 16) * 16;
#endif
        const bool there = int(row) < rows_left && int(byte / 2) < cols_left;
        copy_async_or_zeros<16>(shared + row * ROW + (byte ^ twist<ROW>(row)), source + (row * ld) * 2 + byte, there);
    }
}

struct Fragments {
    u32 a[TILES_M][4], b[TILES_N][2];

    __device__ __forceinline__ void load(u32 slot, u32 lane, int warp_m, int warp_n, int step) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            const u32 row = warp_m + i * 16 + lane % 16, byte = step * 32 + lane / 16 * 16;
            load_matrices<false>(a[i][0], a[i][1], a[i][2], a[i][3], slot + row * ROW_A + (byte ^ twist<ROW_A>(row)));
        }
#pragma unroll
        for (int j = 0; j < TILES_N; j += 2) {
            const u32 row = step * 16 + lane % 16, byte = (warp_n + j * 8) * 2 + lane / 16 * 16;
            const u32 at = slot + BYTES_A + row * ROW_B + (byte ^ twist<ROW_B>(row));
            load_matrices<true>(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], at);
        }
    }

    __device__ __forceinline__ void multiply(float (&sums)[TILES_M][TILES_N][4]) const {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                multiply_add<F16>(sums[i][j], a[i], b[j]);
#if defined(MANY_BARRIERS)
                if (j % 4 == 3) __syncthreads();
#endif
            }
    }
};

__device__ __forceinline__ float activate(float x) {
#if defined(GELU_BY_SERIES)
    // erf(z) = 2/sqrt(pi) exp(-z^2) sum of z (2 z^2)^i / (1 3 5 ... (2i + 1)): far more work than erff
    const float z = fminf(fmaxf(x * 0.70710678f, -4.0f), 4.0f), twice = 2.0f * z * z;
    float term = z, sum = z;
#pragma unroll 1
    for (int i = 1; i < 72; ++i) {
        term *= __fdividef(twice, float(2 * i + 1));
        sum += term;
    }
    return 0.5f * x * (1.0f + 1.1283791671f * __expf(-z * z) * sum);
#elif defined(GELU)
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
#else
    return x;
#endif
}

// Eight columns of a row: activation(alpha A B + bias) + residual.
__device__ __forceinline__ void finish(float (&values)[8], const char* bias, const char* residual, int available, float alpha) {
    float addends[8] = {};
#if defined(BIAS)
    add_row<F16, 8, 8>(addends, bias, available, 1.0f);
#endif
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = activate(fmaf(alpha, values[e], addends[e]));
#if defined(RESIDUAL)
    add_row<F16, 8, 8>(values, residual, available, 1.0f);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    tensor(const char* a, const char* b, char* d, const char* bias, const char* residual, int m, int n, int k, i64 lda,
           i64 ldb, i64 ldd, float alpha, int first) {
    extern __shared__ __align__(128) unsigned char memory[];
    const u32 shared = shared_address(memory), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp % WARPS_M * WM, warp_n = warp / WARPS_M * WN;
    const int tiles_m = (m + BM - 1) / BM, tiles_n = (n + BN - 1) / BN;
    if (blockIdx.x + first >= u32(tiles_m * tiles_n)) return;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x + first, tiles_m, tiles_n);
    const int m0 = tile.m * BM, n0 = tile.n * BN;
    const int part = (k / BK + gridDim.y - 1) / gridDim.y * BK, from = blockIdx.y * part;  // of k, for this row of blocks
    const int until = blockIdx.y + 1 < gridDim.y && from + part < k ? from + part : k;
    const int tiles_k = from < until ? (until - from + BK - 1) / BK : 0;

#if defined(EXTRA_TILES)
    const int steps_k = tiles_k + EXTRA_TILES;  // the first tile so many times more, and its sums thrown away
#else
    const int steps_k = tiles_k;
#endif
    const auto fetch = [&](int number) {
        if (number < steps_k) {
#if defined(OWN_FIRST_K)
            const int k0 = from + (number + blockIdx.x * 29) % tiles_k * BK;  // no two blocks at one place at a time
#else
            const int k0 = from + (number - (steps_k - tiles_k) > 0 ? number - (steps_k - tiles_k) : 0) * BK;
#endif
            const u32 to = shared + number % STAGES * SLOT;
            copy_tile<BM, ROW_A>(to, a + (m0 * lda + k0) * 2, lda, m - m0, until - k0);
            copy_tile<BK, ROW_B>(to + BYTES_A, b + (k0 * ldb + n0) * 2, ldb, until - k0, n - n0);
        }
        commit_copies();
    };
#if !defined(WAIT_AT_ONCE)
    for (int number = 0; number < STAGES - 1; ++number) fetch(number);
#endif

    float sums[TILES_M][TILES_N][4] = {};
    Fragments fragments[2];
    for (int number = 0; number < steps_k; ++number) {
#if defined(EXTRA_TILES)
        if (number == EXTRA_TILES) {
#pragma unroll
            for (int i = 0; i < TILES_M * TILES_N * 4; ++i) (&sums[0][0][0])[i] = 0.0f;
        }
#endif
#if defined(WAIT_AT_ONCE)
        __syncthreads();
        fetch(number);
        wait_for_copies<0>();
        __syncthreads();
#else
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        fetch(number + STAGES - 1);
#endif
        const u32 slot = shared + number % STAGES * SLOT;
        fragments[0].load(slot, lane, warp_m, warp_n, 0);
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step + 1 < STEPS) fragments[(step + 1) % 2].load(slot, lane, warp_m, warp_n, step + 1);
            fragments[step % 2].multiply(sums);
        }
    }

#if defined(STORES_DOWN)
    constexpr u32 PITCH = BN * 2 + 4;  // staged, then stored with neighbouring lanes in neighbouring rows
    wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            const float* pair = sums[i / 2][j] + i % 2 * 2;
            const u32 row = warp_m + i * 8 + lane / 4, col = warp_n + j * 8 + lane % 4 * 2;
            *reinterpret_cast<u32*>(memory + row * PITCH + col * 2) = pack_pair<F16>(alpha * pair[0], alpha * pair[1]);
        }
    __syncthreads();
    for (int at = threadIdx.x; at < BM * BN; at += THREADS) {
        const int row = at % BM, col = at / BM;
        if (m0 + row < m && n0 + col < n)
            *reinterpret_cast<u16*>(d + ((m0 + row) * ldd + n0 + col) * 2) =
                *reinterpret_cast<u16*>(memory + row * PITCH + col * 2);
    }
#else
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {
        const i64 row = m0 + warp_m + i * 8 + int(lane / 4);
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            const int col = n0 + warp_n + j * 8 + int(lane % 4) * 8, available = row < m ? n - col : 0;
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            gather_columns(values, lane);
#if defined(PARTIAL)
            store_row<F32, 8, 4>(d + ((blockIdx.y * i64(m) + row) * n + col) * 4, values, available);
#else
            finish(values, bias + col * 2, residual + (row * ldd + col) * 2, available, alpha);
            store_row<F16, 8, 8>(d + (row * ldd + col) * 2, values, available);
#endif
        }
    }
#endif
}
