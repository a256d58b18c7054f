// tensor-core: the double-buffered kernel with the multiplications done by mma.sync. A warp computes WM x WN of D in
// steps of 16 x 8 sums and 32 bytes of depth (16 elements of f16 or bf16, 8 of tf32).
//
// The instruction wants each operand spread over the lanes in a fixed pattern, which ldmatrix delivers from rows of 16
// bytes in shared memory; where an operand is stored across that pattern, ldmatrix transposes on the way. The fragments
// of the next step are loaded while this step's are multiplied, across the border of tiles too: the barrier that
// publishes the next tile lies before the last step of this one. Blocks take the tiles of D in groups of GROUP_M rows.
#include "dgw/mma.cuh"
#include "dgw/output.cuh"
#include "dgw/tile.cuh"
#include "dgw/tile_order.cuh"

using namespace dgw;

constexpr int WARPS_M = BM / WM;
constexpr int THREADS = 32 * WARPS_M * (BN / WN);
constexpr int STEP_BYTES = 32;  // depth of one mma
constexpr int STEP = STEP_BYTES / size_of(TYPE_A);
constexpr int STEPS = BK / STEP;
constexpr int TILES_M = WM / 16;
constexpr int TILES_N = WN / 8;

using TileA = Tile<TYPE_A, K_MAJOR_A, BM, BK, THREADS, VEC_A, ASYNC>;
using TileB = Tile<TYPE_B, K_MAJOR_B, BN, BK, THREADS, VEC_B, ASYNC>;
constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;

// Where a lane reads in a tile: `spot` is the place at step 0 of the warp's first 16 rows of A or columns of B; further
// ones, and further steps where k runs along the rows, change bits that nothing else uses, by XOR.
template <class Tile, bool K_MAJOR, Type T>
struct Lane {
    u32 row, spot;

    // `row_low`: the lane's part of the row in a 16-row, 2-chunk square; `half`: which of its two chunks it reads.
    __device__ __forceinline__ Lane(u32 lane, u32 first, u32 row_low, u32 half) {
        if constexpr (K_MAJOR) {
            row = (first + row_low) * Tile::ROW;
            spot = half * 16 ^ Tile::twist(row_low);
        } else if constexpr (size_of(T) == 2) {
            row = row_low * Tile::ROW;
            spot = (first * size_of(T) + half * 16) ^ Tile::twist(row_low);
        } else {
            row = lane % 4 * Tile::ROW;
            spot = (first + lane / 4) * size_of(T) ^ Tile::twist(lane % 4);
        }
    }

    // Address of the 16-row (A) or 16-column (B) square number `square` at step `step`.
    __device__ __forceinline__ u32 address(u32 square, u32 step) const {
        if constexpr (K_MAJOR) return row + square * 16 * Tile::ROW + (spot ^ step * STEP_BYTES);
        return row + step * STEP * Tile::ROW + (spot ^ square * 16 * size_of(T));
    }
};

using LaneA = Lane<TileA, K_MAJOR_A, TYPE_A>;
using LaneB = Lane<TileB, K_MAJOR_B, TYPE_B>;

// What a warp multiplies in one step.
struct Fragments {
    u32 a[TILES_M][4];
    u32 b[TILES_N][2];

    __device__ __forceinline__ void load(u32 shared, const LaneA& lane_a, const LaneB& lane_b, u32 step) {
#pragma unroll
        for (u32 i = 0; i < TILES_M; ++i) {
            const u32 at = shared + lane_a.address(i, step);
            if constexpr (size_of(TYPE_A) == 4 && !K_MAJOR_A)
                load_singly<TileA>(a[i][0], a[i][1], a[i][2], a[i][3], at, at ^ 32);
            else
                load_matrices<!K_MAJOR_A>(a[i][0], a[i][1], a[i][2], a[i][3], at);
        }
#pragma unroll
        for (u32 j = 0; j < TILES_N; j += 2) {
            const u32 at = shared + TileA::BYTES + lane_b.address(j / 2, step);
            if constexpr (size_of(TYPE_B) == 4 && !K_MAJOR_B)
                load_singly<TileB>(b[j][0], b[j + 1][0], b[j][1], b[j + 1][1], at, at ^ 32);
            else
                load_matrices<!K_MAJOR_B>(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], at);
        }
    }

    // 32-bit elements that run along m or n: ldmatrix would tear them apart. Two groups of eight m or n, 4 rows apart.
    template <class Tile>
    static __device__ __forceinline__ void load_singly(u32& k0, u32& k0_next, u32& k4, u32& k4_next, u32 at, u32 next) {
        load_shared_word(k0, at);
        load_shared_word(k0_next, next);
        load_shared_word(k4, at + 4 * Tile::ROW);
        load_shared_word(k4_next, next + 4 * Tile::ROW);
    }

    __device__ __forceinline__ void multiply(float (&sums)[TILES_M][TILES_N][4]) {
        if constexpr (size_of(TYPE_A) == 4) round();
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) multiply_add<TYPE_A>(sums[i][j], a[i], b[j]);
    }

    __device__ __forceinline__ void round() {
#pragma unroll
        for (int i = 0; i < TILES_M * 4; ++i) a[i / 4][i % 4] = round_to_tf32(a[i / 4][i % 4]);
#pragma unroll
        for (int i = 0; i < TILES_N * 2; ++i) b[i / 2][i % 2] = round_to_tf32(b[i / 2][i % 2]);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    tensor_core(const char* a, const char* b, const char* c, char* d, int m, int n, int k, i64 lda, i64 ldb, i64 ldc,
                i64 ldd, float alpha, float beta) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 shared_base = shared_address(shared);

    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp % WARPS_M * WM, warp_n = warp / WARPS_M * WN;
    const TilePlace tile = grouped_tile<GROUP_M>(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN);
    const int m0 = tile.m * BM, n0 = tile.n * BN;

    // Of the four 8 x 16-byte matrices of a square, A counts rows first and B chunks first; stored across, the reverse.
    const u32 rows_first = lane % 16, rows_last = lane / 16 * 8 + lane % 8;
    const LaneA lane_a(lane, warp_m, K_MAJOR_A ? rows_first : rows_last, K_MAJOR_A ? lane / 16 : lane / 8 % 2);
    const LaneB lane_b(lane, warp_n, K_MAJOR_B ? rows_last : rows_first, K_MAJOR_B ? lane / 8 % 2 : lane / 16);

    TileA tile_a;
    TileB tile_b;
    tile_a.begin(a, lda, m0, m, k);
    tile_b.begin(b, ldb, n0, n, k);
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        tile_a.fetch(shared_base + stage * SLOT, lda);
        tile_b.fetch(shared_base + stage * SLOT + TileA::BYTES, ldb);
        commit_copies();
    }
    wait_for_copies<STAGES - 2>();
    __syncthreads();

    u32 slot = shared_base, free_slot = shared_base + (STAGES - 1) * SLOT;
    float sums[TILES_M][TILES_N][4] = {};
    Fragments fragments[2];
    fragments[0].load(slot, lane_a, lane_b, 0);

    for (int tiles_left = (k + BK - 1) / BK; tiles_left > 0; --tiles_left) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                wait_for_copies<STAGES - 2>();
                __syncthreads();  // the next tile is complete, and this one's slot has been read
                free_slot = slot;
                slot = slot == shared_base + (STAGES - 1) * SLOT ? shared_base : slot + SLOT;
            }
            fragments[(step + 1) % 2].load(slot, lane_a, lane_b, (step + 1) % STEPS);
            if (step == 0) {
                tile_a.fetch(free_slot, lda);
                tile_b.fetch(free_slot + TileA::BYTES, ldb);
                commit_copies();
            }
            fragments[step % 2].multiply(sums);
        }
    }
    wait_for_copies<0>();

    // A lane holds two neighbouring columns of each 16 x 8 tile: exchanged with three others, eight of a row.
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {
        const i64 row = m0 + warp_m + i * 8 + int(lane / 4);
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = alpha * sums[i / 2][j + e / 2][i % 2 * 2 + e % 2];
            gather_columns(values, lane);
            const int col = n0 + warp_n + j * 8 + int(lane % 4) * 8;
            const int available = row < m ? n - col : 0;
            if constexpr (USE_C)
                add_row<TYPE_C, 8, VEC_C>(values, c + (row * ldc + col) * size_of(TYPE_C), available, beta);
            store_row<TYPE_D, 8, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), values, available);
        }
    }
}
