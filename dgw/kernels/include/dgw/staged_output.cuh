// The way of finished sums to D by the copy engine: each warp has a piece of 16 rows stored while it finishes the next.
#pragma once

#include "dgw/staged_pieces.cuh"
#include "dgw/tma.cuh"

namespace dgw {

// The last LATER pieces may be held back, and finished when other sums take the registers of these.
template <int COLUMNS, int LATER = 0>
struct StagedOutput {
    using Pieces = StagedPieces<COLUMNS>;
    using Held = typename Pieces::Held[LATER > 0 ? LATER : 1];
    static constexpr int FIRST_LATER = Pieces::COUNT - LATER;
    static_assert(FIRST_LATER >= 0, "no more pieces can be held back than there are");

    Pieces pieces;
    const TensorMap& map;

    // All but those that are held back. `row0` and `col0`: where the sums begin in D.
    __device__ __forceinline__ void store(const float (&sums)[COLUMNS / 8][4], const BiasOfLane<COLUMNS>& bias, int row0,
                                          int col0, u32 lane) const {
#pragma unroll
        for (int piece = 0; piece < FIRST_LATER; ++piece)
            send(piece, row0, col0, lane, [&](u32 target) { pieces.fill(target, sums, bias, piece, row0, col0, lane); });
    }

    __device__ __forceinline__ void hold(Held& held, const float (&sums)[COLUMNS / 8][4],
                                         const BiasOfLane<COLUMNS>& bias, int row0, int col0, u32 lane) const {
#pragma unroll
        for (int i = 0; i < LATER; ++i) pieces.hold(held[i], sums, bias, FIRST_LATER + i, row0, col0, lane);
    }

    // Number `i` of the pieces that were held back.
    __device__ __forceinline__ void store_held(const Held& held, int i, int row0, int col0, u32 lane) const {
        const int piece = FIRST_LATER + i;
        send(piece, row0, col0, lane, [&](u32 target) { pieces.fill(target, held[i], piece, row0, col0, lane); });
    }

private:
    template <class Fill>
    __device__ __forceinline__ void send(int piece, int row0, int col0, u32 lane, Fill fill) const {
        const u32 target = pieces.address(piece);
        const int col = col0 + piece * Pieces::WIDTH;
        if (lane == 0) {  // what was in this place has left
            if (piece == 0 && Pieces::COUNT % 2 != 0)
                wait_for_sources<0>();
            else
                wait_for_sources<1>();
        }
        __syncwarp();
        fill(target);
        publish_to_engines();
        __syncwarp();
        if (lane == 0) {
            if (row0 < pieces.epilogue.m && col < pieces.epilogue.n) store_box(map, row0, col, target);
            commit_stores();  // also of none, so that the waits count pieces
        }
    }
};

}  // namespace dgw
