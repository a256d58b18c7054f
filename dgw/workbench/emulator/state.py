"""Registers and lanes of the CTAs that run together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.observer import Dim3

WARP = 32
REGISTER_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: np.dtype(np.complex128),
}


def register_class(bits: int) -> int:
    """The width in which a register of `bits` is held: 8-bit registers live in 16 bits."""
    return 16 if bits == 8 else bits


class Lanes:
    """All threads of a batch of CTAs, CTA-major, each CTA padded to whole warps. Arrays have one entry per lane."""

    def __init__(self, grid: Dim3, block: Dim3, ctas: Sequence[Dim3], cluster: int = 1) -> None:
        self.grid, self.block, self.ctas, self.cluster = grid, block, tuple(ctas), cluster
        self.threads = block[0] * block[1] * block[2]
        self.warps_per_cta = -(-self.threads // WARP)
        self.per_cta = self.warps_per_cta * WARP
        self.warps = self.warps_per_cta * len(ctas)
        self.count = self.per_cta * len(ctas)
        self.thread = np.tile(np.arange(self.per_cta, dtype=np.int64), len(ctas))
        self.cta = np.repeat(np.arange(len(ctas), dtype=np.int64), self.per_cta)
        self.exists = self.thread < self.threads
        self.full = bool(self.exists.all())

    def first_of_cluster(self, cta: int) -> int:
        """The CTA of the batch, by number, that has rank 0 in the cluster of another."""
        return cta - self.ctas[cta][0] % self.cluster

    def special(self, name: str, shared_bytes: int, dynamic_bytes: int) -> NDArray[np.uint64]:
        """The value of a special register in every lane; clocks and timers read 0."""
        thread, (bx, by, bz), (gx, gy, gz) = self.thread, self.block, self.grid
        word, _, axis = name[1:].partition(".")
        place = "xyz".index(axis) if axis else 0
        if word == "tid":
            value: Any = (thread % bx, thread // bx % by, thread // (bx * by))[place]
        elif word in ("ctaid", "clusterid", "cluster_ctaid", "cluster_ctarank"):
            value = self._of_cta(word, place)
        elif word == "ntid":
            value = (bx, by, bz)[place]
        elif word == "nctaid":
            value = (gx, gy, gz)[place]
        elif word == "nclusterid":
            value = (gx // self.cluster, gy, gz)[place]
        elif word == "laneid":
            value = thread % WARP
        elif word == "warpid":
            value = thread // WARP
        elif word.startswith("lanemask"):
            value = self._lane_mask(word)
        elif word in ("cluster_nctaid", "cluster_nctarank"):
            value = self.cluster if place == 0 else 1
        elif word in ("nwarpid", "nsmid"):
            value = {"nwarpid": self.warps_per_cta}.get(word, 1)
        elif word in ("dynamic_smem_size", "total_smem_size", "aggr_smem_size"):
            value = dynamic_bytes if word.startswith("dynamic") else shared_bytes
        else:
            value = 0
        return np.broadcast_to(np.asarray(value, dtype=np.uint64), (self.count,)).copy()

    def _of_cta(self, word: str, place: int) -> NDArray[np.int64]:
        """Where each lane's CTA is: in the grid, or in its cluster, which lies along x; or where its cluster is."""
        along = np.array([cta[place] for cta in self.ctas], dtype=np.int64)[self.cta]
        if place or word == "ctaid":
            return np.zeros_like(along) if word.startswith("cluster_") else along
        return along // self.cluster if word == "clusterid" else along % self.cluster

    def _lane_mask(self, word: str) -> NDArray[np.int64]:
        bit = np.int64(1) << (self.thread % WARP)
        below = bit - 1
        full = np.int64(0xFFFFFFFF)
        masks = {"eq": bit, "lt": below, "le": below | bit, "gt": full & ~(below | bit), "ge": full & ~below}
        return np.asarray(masks[word[-2:]])


class Registers:
    """One typeless array [rows, lanes] per register width."""

    def __init__(self, rows: dict[int, int], lanes: int) -> None:
        self.arrays: dict[int, NDArray[Any]] = {
            bits: np.zeros((max(rows.get(bits, 0), 1), lanes), dtype=dtype) for bits, dtype in REGISTER_DTYPES.items()
        }

    def view(self, bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Rows of a width seen as `dtype`: [rows, lanes]. A narrower dtype takes the low part of each register."""
        array = self.arrays[bits]
        if bits == 1:
            return array if dtype == np.bool_ else array.view(np.uint8)
        if dtype.itemsize == array.itemsize:
            return array.view(dtype)
        if dtype.itemsize > array.itemsize:
            raise ValueError("a register is narrower than the type it is read as")
        return array.view(dtype)[:, :: array.itemsize // dtype.itemsize]
