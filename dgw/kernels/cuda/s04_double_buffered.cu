// double-buffered: the swizzled kernel with STAGES tiles of each operand in shared memory. While the CTA computes with one
// tile, asynchronous copies fill the slots of the tiles to come, past the registers, and nobody waits for them until
// their turn.
//
// A tile is complete for all threads when each has waited for its own copies and all have met at the barrier. The same
// barrier says that the slot of the tile before has been read, so one barrier a tile is enough: the copy that refills
// that slot starts after it. Every step closes a group of copies, even an empty one past the last tile, so that "all but
// the last STAGES - 2 groups" always means this step's tile. Tiles inside the matrix are copied by a plain form of the
// instruction; at the edges each copy says how many of its bytes exist.
//
// ASYNC false copies through registers instead, the loads before the computation and the stores after it. One stage has
// nothing to overlap with and needs the second barrier again.
#include "dgw/async.cuh"
#include "dgw/output.cuh"

using namespace dgw;

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int LANES_M = 8;  // a warp is 8 threads along m (consecutive lanes) by 4 along n
constexpr int LANES_N = 4;
constexpr int WARPS_M = BM / (TM * LANES_M);

// A tile of one operand: EXTENT of its m or n, by BK of its k. K_MAJOR: consecutive elements run along k.
template <Type T, bool K_MAJOR, int EXTENT, int PER_THREAD, int VEC>
struct Tile {
    static constexpr int CHUNK = GRANULARITY * size_of(T) < 16 ? GRANULARITY * size_of(T) : 16;
    static constexpr int ELEMENTS = CHUNK / size_of(T);
    static constexpr int WORDS = CHUNK / 4;
    static constexpr int CHUNKS_IN_ROW = (K_MAJOR ? BK : EXTENT) / ELEMENTS;
    static constexpr int COPIES = EXTENT * BK / ELEMENTS / THREADS;
    static constexpr int COPY_ROWS = THREADS / CHUNKS_IN_ROW;
    static constexpr int BYTES = EXTENT * BK * size_of(T);
    // Chunks a thread reads at one k (along m or n), and how many k one chunk holds.
    static constexpr int K_IN_CHUNK = K_MAJOR ? ELEMENTS : 1;
    static constexpr int CHUNKS = K_MAJOR ? PER_THREAD : PER_THREAD / ELEMENTS;

    static constexpr u32 ROW = CHUNKS_IN_ROW * CHUNK;  // bytes
    static constexpr u32 LINE = ROW > 128 ? ROW : 128;
    // Bytes between the chunks that neighbouring lanes read in one access.
    static constexpr u32 LANE_STRIDE = K_MAJOR ? PER_THREAD * ROW : PER_THREAD * size_of(T);

    // What is XORed into the addresses of the chunks that `thread` reads: its number in units of a chunk, or, where
    // neighbours lie less than a line apart, the part of its number that the place in the line does not show.
    static __device__ __forceinline__ u32 twist(u32 thread) {
        if constexpr (LANE_STRIDE >= 128) return thread * CHUNK % 128;
        return thread * LANE_STRIDE / 128 * CHUNK % LANE_STRIDE;
    }

    // Address in the tile of byte `byte` of row `row`, which `thread` reads.
    static __device__ __forceinline__ u32 place(u32 row, u32 byte, u32 thread) {
        const u32 natural = row * ROW + byte;
        return natural / LINE * LINE + (natural % LINE ^ twist(thread));
    }

    u32 words[COPIES][WORDS];

    // From global memory towards `shared`: copies that are under way (ASYNC), or loads into registers. Unless the tile is
    // WHOLE, what lies beyond the matrix becomes zero. `outer` is the first m or n. The copies of a thread lie in one
    // column, COPY_ROWS rows apart.
    template <bool WHOLE>
    __device__ __forceinline__ void fetch(u32 shared, const char* source, i64 ld, int outer, int extent, int k0, int k) {
        const u32 thread = fresh_thread_index();  // so that no address waits in a register for its next use
        const int row = (K_MAJOR ? outer : k0) + thread / CHUNKS_IN_ROW;
        const int col = (K_MAJOR ? k0 : outer) + thread % CHUNKS_IN_ROW * ELEMENTS;
        const int rows_left = (K_MAJOR ? extent : k) - row;
        const int cols_left = (K_MAJOR ? k : extent) - col;
        const char* from = source + (row * ld + col) * size_of(T);
        const i64 step = COPY_ROWS * ld * size_of(T);
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int available = WHOLE ? ELEMENTS : i * COPY_ROWS < rows_left ? cols_left : 0;
            if constexpr (ASYNC)
                copy_row_part_async<T, CHUNK, VEC * size_of(T), WHOLE>(shared + target(thread, i), from + i * step,
                                                                       available);
            else
                load_row_part<T, CHUNK, VEC * size_of(T)>(words[i], from + i * step, available);
        }
    }

    // Without ASYNC: from registers into shared memory.
    __device__ __forceinline__ void put(u32 shared) const {
        if constexpr (!ASYNC) {
            const u32 thread = fresh_thread_index();
#pragma unroll
            for (int i = 0; i < COPIES; ++i) store_shared<CHUNK>(shared + target(thread, i), words[i]);
        }
    }

    // Where this thread's copy number `copy` goes. Its rows lie COPY_ROWS apart, a power of two above its first row, so
    // that the readers' numbers share no bits and their twists add up by XOR.
    static __device__ __forceinline__ u32 target(u32 thread, u32 copy) {
        const u32 row = thread / CHUNKS_IN_ROW, byte = thread % CHUNKS_IN_ROW * CHUNK;
        const u32 first = place(row, byte, (K_MAJOR ? row : byte / size_of(T)) / PER_THREAD);
        const u32 threads_on = K_MAJOR ? copy * COPY_ROWS / PER_THREAD : 0;
        return (first ^ twist(threads_on)) + copy * COPY_ROWS * ROW;
    }

    // The chunks that hold this thread's PER_THREAD rows or columns at step k of the tile. This is `place` with the
    // constant parts of the address set apart: the thread's first chunk lies at the beginning of a line (K_MAJOR), or
    // its chunks differ only in bits that the XOR cannot carry out of.
    static __device__ __forceinline__ void read(u32 (&chunks)[CHUNKS][WORDS], u32 shared, u32 thread, u32 k) {
        const u32 first = shared + (K_MAJOR ? thread * PER_THREAD * ROW : k * ROW + thread * PER_THREAD * size_of(T));
        const u32 spot = K_MAJOR ? k * size_of(T) ^ twist(thread) : twist(thread);
#pragma unroll
        for (u32 i = 0; i < CHUNKS; ++i) {
            const u32 offset = i * (K_MAJOR ? ROW : CHUNK);
            load_shared<CHUNK>(chunks[i], first + offset / LINE * LINE + (offset % LINE ^ spot));
        }
    }

    // Element number i of the thread's rows or columns, at step k.
    static __device__ __forceinline__ float element(const u32 (&chunks)[CHUNKS][WORDS], int i, int k) {
        const int chunk = K_MAJOR ? i : i / ELEMENTS;
        const int byte = (K_MAJOR ? k : i) % ELEMENTS * size_of(T);
        return to_f32<T>(chunks[chunk][byte / 4], byte % 4 / 2);
    }
};

using TileA = Tile<TYPE_A, K_MAJOR_A, BM, TM, VEC_A>;
using TileB = Tile<TYPE_B, K_MAJOR_B, BN, TN, VEC_B>;

constexpr u32 SLOT = TileA::BYTES + TileB::BYTES;  // bytes of one stage

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    double_buffered(const char* a, const char* b, const char* c, char* d, int m, int n, int k, i64 lda, i64 ldb,
                    i64 ldc, i64 ldd, float alpha, float beta) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 shared_a = shared_address(shared);
    const u32 shared_b = shared_a + TileA::BYTES;

    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 thread_m = warp % WARPS_M * LANES_M + lane % LANES_M;
    const u32 thread_n = warp / WARPS_M * LANES_N + lane / LANES_M;
    const int tiles_n = (n + BN - 1) / BN;
    const int m0 = int(blockIdx.x / u32(tiles_n)) * BM;
    const int n0 = int(blockIdx.x % u32(tiles_n)) * BN;

    float sums[TM][TN] = {};
    TileA tile_a;
    TileB tile_b;
    const int tiles_k = (k + BK - 1) / BK;
    const bool inside = m0 + BM <= m && n0 + BN <= n;

    // Tile number `tile` along k towards `slot`; nothing where there is none. One decision for all threads: what lies
    // inside the matrix is copied without asking where it ends.
    const auto fetch = [&](u32 slot, int tile) {
        const int k0 = tile * BK;
        if (inside && k0 + BK <= k) {
            tile_a.fetch<true>(shared_a + slot, a, lda, m0, m, k0, k);
            tile_b.fetch<true>(shared_b + slot, b, ldb, n0, n, k0, k);
        } else if (tile < tiles_k) {
            tile_a.fetch<false>(shared_a + slot, a, lda, m0, m, k0, k);
            tile_b.fetch<false>(shared_b + slot, b, ldb, n0, n, k0, k);
        }
        commit_copies();
    };
    const auto put = [&](u32 slot, int tile) {
        if (ASYNC || tile >= tiles_k) return;
        tile_a.put(shared_a + slot);
        tile_b.put(shared_b + slot);
    };

#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        fetch(tile * SLOT, tile);
        put(tile * SLOT, tile);
    }

    u32 slot = 0, free_slot = (STAGES - 1) * SLOT;  // of this tile, and of the tile that is fetched meanwhile
    for (int tile = 0; tile < tiles_k; ++tile) {
        const int next = tile + STAGES - 1;
        if constexpr (STAGES > 1) {
            wait_for_copies<STAGES - 2>();
            __syncthreads();
        }
        if constexpr (STAGES == 1 && ASYNC) __syncthreads();
        fetch(free_slot, next);
        if constexpr (STAGES == 1) {
            if constexpr (!ASYNC) __syncthreads();
            put(0, next);
            wait_for_copies<0>();
            __syncthreads();
        }

        constexpr int STEP = TileA::ELEMENTS;
#pragma unroll 1
        for (u32 slice = 0; slice < BK; slice += STEP) {
            u32 chunks_a[TileA::CHUNKS][TileA::WORDS], chunks_b[TileB::CHUNKS][TileB::WORDS];
#pragma unroll
            for (int step = 0; step < STEP; ++step) {
                if (step % TileA::K_IN_CHUNK == 0) TileA::read(chunks_a, shared_a + slot, thread_m, slice + step);
                if (step % TileB::K_IN_CHUNK == 0) TileB::read(chunks_b, shared_b + slot, thread_n, slice + step);
                float b_values[TN];
#pragma unroll
                for (int j = 0; j < TN; ++j) b_values[j] = TileB::element(chunks_b, j, step);
#pragma unroll
                for (int i = 0; i < TM; ++i) {
                    const float a_value = TileA::element(chunks_a, i, step);
#pragma unroll
                    for (int j = 0; j < TN; ++j) sums[i][j] = fmaf(a_value, b_values[j], sums[i][j]);
                }
            }
        }

        if constexpr (STAGES > 1) {
            put(free_slot, next);
            free_slot = slot;
            slot = slot == (STAGES - 1) * SLOT ? 0 : slot + SLOT;
        }
    }

    const int col = n0 + int(thread_n) * TN;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const i64 row = m0 + int(thread_m) * TM + i;
        const int available = row < m ? n - col : 0;
#pragma unroll
        for (int j = 0; j < TN; ++j) sums[i][j] *= alpha;
        if constexpr (USE_C)
            add_row<TYPE_C, TN, VEC_C>(sums[i], c + (row * ldc + col) * size_of(TYPE_C), available, beta);
        store_row<TYPE_D, TN, VEC_D>(d + (row * ldd + col) * size_of(TYPE_D), sums[i], available);
    }
}
