// The way of finished sums to D by the copy engine: each warp has a piece of 16 rows stored while it finishes the next.
#pragma once

#include "dgw/staged_pieces.cuh"
#include "dgw/tma.cuh"

namespace dgw {

template <int COLUMNS>
struct StagedOutput {
    using Pieces = StagedPieces<COLUMNS>;

    Pieces pieces;
    const TensorMap& map;

    // `row0` and `col0`: where the sums begin in D.
    __device__ __forceinline__ void store(const float (&sums)[COLUMNS / 8][4], const BiasOfLane<COLUMNS>& bias, int row0,
                                          int col0, u32 lane) const {
        const Epilogue& epilogue = pieces.epilogue;
#pragma unroll
        for (int piece = 0; piece < Pieces::COUNT; ++piece) {
            const u32 target = pieces.address(piece);
            const int col = col0 + piece * Pieces::WIDTH;
            if (lane == 0) {  // what was in this place has left
                if (piece == 0 && Pieces::COUNT % 2 != 0)
                    wait_for_sources<0>();
                else
                    wait_for_sources<1>();
            }
            __syncwarp();
            pieces.fill(target, sums, bias, piece, row0, col0, lane);
            publish_to_engines();
            __syncwarp();
            if (lane == 0) {
                if (row0 < epilogue.m && col < epilogue.n) store_box(map, row0, col, target);
                commit_stores();  // also of none, so that the waits count pieces
            }
        }
    }
};

}  // namespace dgw
