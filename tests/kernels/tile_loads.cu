// The boxes that are asked of the copy engine for a tile, written down instead of copied.
#define load_box load_box_of_the_engine
#include "dgw/tma.cuh"
#undef load_box

namespace dgw {

// `log`: the shared address of a count and then, for each box, where it goes, by which map (the low half of its address), its
// row and column, and who receives it, all of them for a box that goes to one CTA.
template <bool MULTICAST>
__device__ __forceinline__ void load_box(u32 target, const TensorMap& map, int row, int col, u32 log,
                                         unsigned short peers = 0) {
    u32 count;
    load_shared_word(count, log);
    const u32 entry[4] = {target, u32(u64(&map)), u32(row), u32(col)}, receivers[2] = {MULTICAST ? peers : ~0u, 0};
    store_shared<16>(log + 16 + count * 32, entry);
    store_shared<8>(log + 32 + count * 32, receivers);
    const u32 next[2] = {count + 1, 0};
    store_shared<8>(log, next);
}

}  // namespace dgw

#include "dgw/wgmma_tile.cuh"

using namespace dgw;

using Tile = WgmmaTile<K_MAJOR_A, BM, TILE_SHARES, LinesA, TILE_SPREAD>;

extern "C" __global__ void ask(const TensorMaps<PHASES_A>* maps, int outer, int k, u32* found) {
    __shared__ __align__(16) u32 log[TILE_LOG];
    for (int i = 0; i < TILE_LOG; ++i) log[i] = 0;
    for (u32 share = 0; share < TILE_SHARES; ++share) Tile::load(0, *maps, outer, k, shared_address(log), share, 5);
    for (int i = 0; i < TILE_LOG; ++i) found[i] = log[i];
}
