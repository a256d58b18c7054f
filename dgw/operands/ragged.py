"""The frozen list of awkward shapes that every variant must get right."""

from __future__ import annotations

from dgw.operands.shapes import Triple, covering_shapes

# Around every power of two that a tile or an instruction uses, and the sizes where whole dimensions vanish.
RAGGED_SIZES = (1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257)

# K around a k tile of 32, and around 3, 5 and 6 k tiles of 64 and 4 of 128: pipelines of 2 to 5 stages start, just fill
# and wrap, with odd (3, 5, 7) and even (6, 8) numbers of k tiles.
RAGGED_DEPTHS = (31, 32, 33, 95, 96, 97, 191, 192, 193, 319, 320, 321, 383, 384, 385, 448, 511, 512, 513)

# More 128 x 128 tiles than any device has multiprocessors, so that a persistent CTA takes a second tile: with an odd
# number of k tiles (192 = 3 x 64) a barrier phase that is not carried over shows, with an even one (256) it hides.
RAGGED_MANY_TILES: tuple[Triple, ...] = ((1793, 1791, 192), (1793, 1791, 256), (1, 40961, 192))

RAGGED_LONG: tuple[Triple, ...] = ((127, 255, 4096),)


def ragged_shapes() -> list[Triple]:
    """At most 250 (m, n, k): all pairs of RAGGED_SIZES over M, N, K; K slices at 127 x 255; more tiles than CTAs."""
    slices = [(127, 255, depth) for depth in RAGGED_DEPTHS]
    shapes = [*covering_shapes(RAGGED_SIZES), *slices, *RAGGED_MANY_TILES, *RAGGED_LONG]
    return list(dict.fromkeys(shapes))
