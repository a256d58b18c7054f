"""From counts per instruction to metrics: totals, per PTX line, per source line, under the keys of the metric table.

What ncu counts at SASS level and what its hardware counters see differ in two places, as measured on an H200: the
global load counters of the hardware include the sources of cp.async, those at SASS level do not; and wavefronts of
ldmatrix and stmatrix belong to the loads and stores of the hardware counters but have columns of their own at SASS
level.

Memory instructions are counted where at least one lane of the warp takes part, as ncu's SASS-level counters do: a
guarded load whose lanes are all off is not among them (measured: `@P LDG` of a tile beyond the end). So it makes no
difference whether the machine code guards an instruction or branches around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dgw.workbench.emulator.costs import Ints, Mask
from dgw.workbench.emulator.counters import Column, Counters
from dgw.workbench.emulator.observer import InstructionInfo, SourceLine

Totals = dict[str, int]

SASS_NAMES = {
    "ld": "ld", "st": "st", "ldmatrix": "ldsm", "stmatrix": "stsm", "cp.async": "ldgsts", "atom": "atom", "red": "atom",
}  # fmt: skip
MMA_OPCODES = ("mma", "wmma", "wgmma")
WARP = 32


@dataclass(frozen=True)
class Table:
    """Additive metrics of every instruction: `values` int64 [instructions, names]."""

    instructions: tuple[InstructionInfo, ...]
    names: tuple[str, ...]
    values: Ints

    def totals(self) -> Totals:
        """The sum over all instructions."""
        return {name: int(value) for name, value in zip(self.names, self.values.sum(axis=0), strict=True)}

    def by_source_line(self) -> dict[SourceLine, Totals]:
        """Sums per line of the kernel's own file, inlined functions of other files apart; no zeros, no idle lines."""
        rows: dict[SourceLine, list[int]] = {}
        for position, info in enumerate(self.instructions):
            rows.setdefault(info.site if info.site.file else info.source, []).append(position)
        found: dict[SourceLine, Totals] = {}
        for line, chosen in rows.items():
            sums = self.values[chosen].sum(axis=0)
            if sums.any():
                found[line] = {name: int(v) for name, v in zip(self.names, sums, strict=True) if v}
        return found


def tabulate(counters: Counters) -> Table:
    """The additive metrics of what `counters` has seen; ratios are made by :func:`with_ratios` from their sums."""
    infos = counters.instructions
    executed = counters.executed()
    columns: dict[str, Ints] = {"inst_executed": executed}
    kinds = np.array([info.kind for info in infos], dtype=np.str_)
    shared, memory, local = (counters.space(name) for name in ("shared", "global", "local"))
    _shared_metrics(columns, kinds, shared)
    _global_metrics(columns, kinds, memory)
    columns["ldgsts_inst"] = np.where(kinds == "cp.async", shared[:, Column.REQUESTS], 0)
    for name, kind in (("local_load_sectors", "ld"), ("local_store_sectors", "st")):
        columns[name] = np.where(kinds == kind, local[:, Column.SECTORS], 0)
    tensor = np.array([info.opcode in MMA_OPCODES and info.kind == "" for info in infos], dtype=np.bool_)
    wgmma = np.array([info.opcode == "wgmma" and "mma_async" in info.modifiers for info in infos], dtype=np.bool_)
    columns["mma_inst"] = np.where(tensor & ~_opcode(infos, "wgmma") | wgmma, executed, 0)
    columns["tensor_inst"] = columns["mma_inst"]  # of what runs on that pipe, PTX has these
    columns["wgmma_inst"] = np.where(wgmma, executed, 0)
    columns["fma_inst"] = np.where(_single_fma(infos), executed, 0)
    if _all_lanes_active(counters):
        columns["ffma_thread_inst"] = WARP * columns["fma_inst"]
    columns["barrier_inst"] = counters.barriers()
    columns["divergent_branches"] = counters.divergent()
    names = tuple(columns)
    return Table(infos, names, np.stack([columns[name] for name in names], axis=1).astype(np.int64))


def _shared_metrics(columns: dict[str, Ints], kinds: np.ndarray, counts: Ints) -> None:
    """Wavefronts, ideal wavefronts, conflicts and requests of shared memory."""
    wavefronts, conflicts, requests = (counts[:, of] for of in (Column.WAVEFRONTS, Column.CONFLICTS, Column.REQUESTS))
    for name in dict.fromkeys(SASS_NAMES.values()):
        chosen = np.isin(kinds, [kind for kind, sass in SASS_NAMES.items() if sass == name])
        columns[f"smem_wavefronts_sass_{name}"] = np.where(chosen, wavefronts, 0)
        columns[f"smem_bank_conflicts_sass_{name}"] = np.where(chosen, conflicts, 0)
    for side, members in (("ld", ("ld", "ldmatrix")), ("st", ("st", "stmatrix")), ("atom", ("atom", "red"))):
        chosen = np.isin(kinds, members)
        columns[f"smem_wavefronts_{side}"] = np.where(chosen, wavefronts, 0)
        columns[f"smem_bank_conflicts_{side}"] = np.where(chosen, conflicts, 0)
        columns[f"smem_ideal_{side}"] = np.where(chosen, counts[:, Column.IDEAL], 0)
    for name in ("ldsm", "stsm", "ldgsts"):
        columns[f"smem_bank_conflicts_{name}"] = columns.pop(f"smem_bank_conflicts_sass_{name}")
    for name in ("ld", "st", "atom"):
        del columns[f"smem_bank_conflicts_sass_{name}"]
    columns["smem_wavefronts_actual"] = wavefronts
    columns["smem_wavefronts_ideal"] = counts[:, Column.IDEAL]
    columns["smem_wavefronts_least_ldgsts"] = np.where(kinds == "cp.async", counts[:, Column.LEAST], 0)
    columns["smem_requests_ld"] = np.where(kinds == "ld", requests, 0)
    columns["smem_requests_st"] = np.where(kinds == "st", requests, 0)
    columns["ldsm_inst"] = np.where(kinds == "ldmatrix", requests, 0)


def _global_metrics(columns: dict[str, Ints], kinds: np.ndarray, counts: Ints) -> None:
    """Requests, sectors and bytes of global memory."""
    for side, hardware in (("ld", ("ld", "cp.async")), ("st", ("st",))):
        exact, seen = kinds == side, np.isin(kinds, hardware)
        columns[f"global_inst_{side}"] = np.where(exact, counts[:, Column.REQUESTS], 0)
        columns[f"global_requests_{side}"] = np.where(seen, counts[:, Column.REQUESTS], 0)
        columns[f"global_sectors_{side}"] = np.where(exact, counts[:, Column.SECTORS], 0)
        columns[f"global_sectors_hw_{side}"] = np.where(seen, counts[:, Column.SECTORS], 0)
        columns[f"global_bytes_{side}"] = np.where(seen, counts[:, Column.BYTES], 0)
    columns["global_sectors_addressed_ld"] = np.where(
        np.isin(kinds, ("ld", "cp.async")), counts[:, Column.ADDRESSED], 0
    )


def _opcode(infos: tuple[InstructionInfo, ...], opcode: str) -> Mask:
    return np.array([info.opcode == opcode for info in infos], dtype=np.bool_)


def _single_fma(infos: tuple[InstructionInfo, ...]) -> Mask:
    """Which instructions are f32 fused multiply-adds of one value a thread."""
    return np.array([info.opcode in ("fma", "mad") and "f32" in info.modifiers for info in infos], dtype=np.bool_)


def _all_lanes_active(counters: Counters) -> bool:
    """Whether it is certain that every multiply-add was executed by all threads of its warp."""
    guarded = any(info.text.startswith("@") and info.opcode in ("fma", "mad") for info in counters.instructions)
    return not guarded and not counters.divergent_branches and counters.full_warps


def with_ratios(totals: Mapping[str, float]) -> dict[str, float]:
    """`totals` and what follows from sums: sectors per request, conflict ratios (actual - ideal) / actual.

    A ratio whose denominator is 0 is left out.
    """
    found = dict(totals)
    for name, top, bottom in (
        ("gld_sectors_per_request", "global_sectors_hw_ld", "global_requests_ld"),
        ("gst_sectors_per_request", "global_sectors_hw_st", "global_requests_st"),
    ):
        if found.get(bottom):
            found[name] = found[top] / found[bottom]
    for side in ("ld", "st"):
        actual = found.get(f"smem_wavefronts_{side}", 0)
        if actual:
            found[f"conflict_ratio_{side}"] = (actual - found[f"smem_ideal_{side}"]) / actual
    return found


def combine(parts: Iterable[tuple[Mapping[str, int], int]]) -> Totals:
    """Sum of totals, each times how many CTAs of the grid its one CTA stands for."""
    found: Totals = {}
    for totals, weight in parts:
        for name, value in totals.items():
            found[name] = found.get(name, 0) + value * weight
    return found


def mma_flops(counters: Counters) -> dict[str, int]:
    """FLOP done by tensor-core instructions, by the dtype of A: 2 m n k for each `m16n8k16` and so on."""
    found: dict[str, int] = {}
    for info, times in zip(counters.instructions, counters.executed(), strict=True):
        shape = next((word for word in info.modifiers if word[:1] == "m" and "n" in word and "k" in word), "")
        if info.opcode in MMA_OPCODES and shape and times:
            rows, rest = shape[1:].split("n")
            cols, depth = rest.split("k")
            dtypes = [word for word in info.modifiers if word in MMA_DTYPES]
            name = MMA_DTYPES[dtypes[1] if len(dtypes) > 2 else dtypes[-1]]
            warps = 4 if info.opcode == "wgmma" else 1  # that compute one product together
            found[name] = found.get(name, 0) + 2 * int(rows) * int(cols) * int(depth) * int(times) // warps
    return found


MMA_DTYPES = {
    "f16": "f16", "bf16": "bf16", "tf32": "tf32", "f32": "f32", "s32": "s32", "s8": "s8", "u8": "s8", "s4": "s4",
    "u4": "s4", "e4m3": "e4m3", "e5m2": "e4m3", "f64": "f64",
}  # fmt: skip
