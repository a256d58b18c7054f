// The ways of a tile's sums to D, of which OUTPUT names one (tiling.py says when which).
#pragma once

#include "dgw/direct_output.cuh"
#include "dgw/row_output.cuh"
#include "dgw/staged_output.cuh"

namespace dgw {

enum Way { BY_ENGINE, BY_ROWS, FROM_REGISTERS };

// COLUMNS of D that a warp finishes; `staging`: the BYTES of shared memory that it has for them.
template <int COLUMNS>
struct TileOutput {
    static constexpr u32 BYTES = StagedPieces<COLUMNS>::BYTES;

    const Epilogue& epilogue;
    const TensorMap& map;
    u32 staging;

    // `row0` and `col0`: where the sums begin in D.
    __device__ __forceinline__ void store(const float (&sums)[COLUMNS / 8][4], const BiasOfLane<COLUMNS>& bias, int row0,
                                          int col0, u32 lane) const {
        if constexpr (OUTPUT == BY_ENGINE)
            StagedOutput<COLUMNS>{{epilogue, staging}, map}.store(sums, bias, row0, col0, lane);
        else if constexpr (OUTPUT == BY_ROWS)
            RowOutput<COLUMNS>{{epilogue, staging}}.store(sums, bias, row0, col0);
        else
            store_directly<COLUMNS>(epilogue, sums, row0, col0, lane);
    }

    // Last: shared memory is not given back while the copy engine reads it.
    static __device__ __forceinline__ void close(u32 lane) {
        if (OUTPUT == BY_ENGINE && lane == 0) wait_for_sources<0>();
    }
};

}  // namespace dgw
