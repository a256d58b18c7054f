// The way of finished sums to D where the copy engine cannot reach it: each warp finishes a piece of 16 rows, writes it to
// shared memory, and stores it row by row, neighbouring lanes neighbouring words of D.
#pragma once

#include "dgw/staged_pieces.cuh"

namespace dgw {

// Of two-byte elements a word of D holds two, and where a row begins in the middle of one, words begin an element before
// those in shared memory. So the first word of such a row in a piece is put together from two pieces, and only the first
// and the last element of all COLUMNS may be alone in their words.
template <int COLUMNS>
struct RowOutput {
    static constexpr int SIZE = size_of(TYPE_D);
    static constexpr int WIDEST = SIZE == 2 && (USE_C || USE_RESIDUAL) ? 64 : 128;  // what they load takes registers, too
    static constexpr int TURN = SIZE / 2;  // elements of four bytes are written in eight, by lanes that fill two parts
    using Pieces = StagedPieces<COLUMNS, WIDEST, TURN>;
    static constexpr int LINE = Pieces::LINE, WIDTH = Pieces::WIDTH;
    static constexpr int ROWS = 128 / LINE;  // of a piece that an instruction stores: a line of all banks
    static constexpr int LINES = 16 / ROWS;
    static constexpr int MOST = USE_C || USE_RESIDUAL || USE_BIAS ? 4 : 16;  // what is added takes registers, too
    static constexpr int BATCH = LINES < MOST ? LINES : MOST;     // that are on their way at the same time
    static constexpr int KINDS = SIZE == 2 && ROWS == 1 ? 2 : 1;  // of rows of a lane: every other begins alike

    Pieces pieces;

    // `row0` and `col0`: where the sums begin in D.
    __device__ __forceinline__ void store(const float (&sums)[COLUMNS / 8][4], const BiasOfLane<COLUMNS>& bias, int row0,
                                          int col0) const {
#pragma unroll
        for (int piece = 0; piece < Pieces::COUNT; ++piece) {
            __syncwarp();  // what was in this place has been read
            pieces.fill(pieces.address(piece), sums, bias, piece, row0, col0, u32(fresh_lane()));
            __syncwarp();
            store_words(piece, row0, col0);
            if constexpr (SIZE == 2) store_ends(piece, row0, col0);
        }
    }

private:
    __device__ __forceinline__ char* in_d(int row, int col) const {
        return pieces.epilogue.d + (row * pieces.epilogue.ldd + col) * SIZE;
    }

    // Of the rows and columns of the sums, how many are in D.
    __device__ __forceinline__ int rows(int row0) const { return pieces.epilogue.m - row0; }
    __device__ __forceinline__ int columns(int col0) const { return min(pieces.epilogue.n - col0, COLUMNS); }

    // Anew for each piece, and with it all addresses: between pieces the registers are full of sums.
    static __device__ __forceinline__ int fresh_lane() { return int(fresh_thread_index() % 32); }

    // 1 where the element at `address` is the second of a word.
    static __device__ __forceinline__ int second_of_word(const char* address) { return int(u64(address) / 2 % 2); }

    // The shared address of a byte of a line of a piece, for lanes of its first row.
    static __device__ __forceinline__ u32 in_line(u32 piece, int line, u32 byte) {
        return piece + line * 128 + (byte ^ Pieces::twist(line * ROWS) * 16);
    }

    // All whole words of D of a piece, and those that it has in common with the piece before.
    __device__ __forceinline__ void store_words(int piece, int row0, int col0) const {
        const int lane = fresh_lane(), row = lane / (LINE / 4), word = lane % (LINE / 4);
        const i64 step = pieces.epilogue.ldd * SIZE;
        const u32 own = pieces.address(piece) + row * LINE;
        const u32 before = word > 0 || piece == 0 ? own : pieces.address(piece + 1) + row * LINE;  // the other place
        const u32 byte = word * 4, byte_before = word > 0 ? byte - 4 : piece == 0 ? 0 : LINE - 4;
        char* target[KINDS];
        bool inside[KINDS], shifted[KINDS];
#pragma unroll
        for (int kind = 0; kind < KINDS; ++kind) {
            target[kind] = in_d(row0 + row + kind, col0 + piece * WIDTH) + byte;
            shifted[kind] = SIZE == 2 && second_of_word(target[kind]);
            const int first = piece * WIDTH + int(byte) / SIZE - int(shifted[kind]);
            inside[kind] = (piece > 0 || first >= 0) && first + 4 / SIZE <= columns(col0);
            if (shifted[kind]) target[kind] -= SIZE;
        }
#pragma unroll 1  // a loop, lest addresses of all lines be computed at once
        for (int begin = 0; begin < LINES; begin += BATCH) {
            u32 words[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                load_shared_word(words[i], in_line(own, begin + i, byte));
                if constexpr (SIZE == 2) {
                    u32 earlier;
                    load_shared_word(earlier, in_line(before, begin + i, byte_before));
                    words[i] = __byte_perm(earlier, words[i], shifted[i % KINDS] ? 0x5432 : 0x7654);
                }
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                store_global_once<4>(target[i % KINDS], words + i,
                                     inside[i % KINDS] && (begin + i) * ROWS + row < rows(row0));
                target[i % KINDS] += KINDS * ROWS * step;
            }
        }
    }

    // The first element of all COLUMNS or the last one that exists, of one row a lane, if it is alone in its word of D.
    __device__ __forceinline__ void store_ends(int piece, int row0, int col0) const {
        const int lane = fresh_lane(), row = lane % 16, last = lane / 16;
        const int element = last * (max(columns(col0), 1) - 1);
        char* const target = in_d(row0 + row, col0 + element);
        const bool alone = second_of_word(target) != last && row < rows(row0) && columns(col0) > 0;
        const u32 byte = element * SIZE % LINE;
        u32 word;
        load_shared_word(word, pieces.address(piece) + row * LINE + (byte / 4 * 4 ^ Pieces::twist(row) * 16));
        word >>= byte % 4 * 8;
        store_global<2>(target, &word, alone && element / WIDTH == piece);
    }
};

}  // namespace dgw
