"""The exact figures of a case: what each is called, its unit, and which direction is worse.

Every figure is the same on every machine that has the same compiler, so any difference is real.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dgw.model import Measurement

TENSOR_OPCODES = ("HMMA", "IMMA", "QMMA", "DMMA", "OMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA",
                  "UTCIMMA", "UTCQMMA", "UTCOMMA")  # fmt: skip
OPCODES = {
    "sass_lds": ("LDS",), "sass_ldsm": ("LDSM",), "sass_sts": ("STS",), "sass_stsm": ("STSM",),
    "sass_ldgsts": ("LDGSTS",), "sass_ldg": ("LDG",), "sass_stg": ("STG",), "sass_tma": ("UTMALDG", "UTMASTG"),
    "sass_bar": ("BAR",), "sass_tensor": TENSOR_OPCODES,
}  # fmt: skip
"""Figure -> the opcodes of machine code that it counts, without modifiers."""


@dataclass(frozen=True)
class Figure:
    """`worse` is the direction that fails a gate; a figure without one is reported and judges nothing.

    `lane` says where it comes from: the compiler (`static`), a disassembly (`sass`), or the emulator.
    """

    key: str
    label: str
    unit: str
    worse: Literal["higher", "lower", ""]
    lane: Literal["static", "sass", "emulator"]


def _static(key: str, label: str, unit: str, worse: Literal["higher", "lower", ""] = "") -> Figure:
    return Figure(key, label, unit, worse, "static")


def _emulated(key: str, label: str, unit: str, worse: Literal["higher", "lower", ""] = "") -> Figure:
    return Figure(key, label, unit, worse, "emulator")


FIGURES = {
    figure.key: figure
    for figure in (
        _emulated("smem_bank_conflicts_ld", "bank conflicts of shared loads", "conflict", "higher"),
        _emulated("smem_bank_conflicts_st", "bank conflicts of shared stores", "conflict", "higher"),
        _emulated("smem_bank_conflicts_ldgsts", "bank conflicts of cp.async", "conflict", "higher"),
        _emulated("smem_bank_conflicts_atom", "bank conflicts of shared atomics", "conflict", "higher"),
        _static("spill_store_bytes", "spill stores per thread", "B", "higher"),
        _static("spill_load_bytes", "spill loads per thread", "B", "higher"),
        _static("local_bytes", "local memory per thread", "B", "higher"),
        _static("ptxas_remarks", "C75xx remarks of ptxas", "remark", "higher"),
        _static("kernels", "kernels launched", "kernel", "higher"),
        _static("theoretical_occupancy", "theoretical occupancy", "ratio", "lower"),
        _static("registers_per_thread", "registers per thread", "register", "higher"),
        _static("shared_mem_per_block", "shared memory per CTA", "B", "higher"),
        _emulated("global_sectors_hw_ld", "sectors loaded", "sector", "higher"),
        _emulated("global_sectors_st", "sectors stored", "sector", "higher"),
        _emulated("local_load_sectors", "local sectors loaded", "sector", "higher"),
        _emulated("local_store_sectors", "local sectors stored", "sector", "higher"),
        _emulated("smem_wavefronts_actual", "shared-memory wavefronts", "wavefront", "higher"),
        _emulated("tensor_inst", "tensor instructions executed", "inst", "higher"),
        _emulated("inst_executed", "instructions executed", "inst", "higher"),
        _emulated("inst_per_cta", "instructions per CTA", "inst"),
        _emulated("smem_wavefronts_ideal", "wavefronts without conflicts", "wavefront"),
        _emulated("global_requests_ld", "global load requests", "request"),
        _emulated("global_requests_st", "global store requests", "request"),
        _emulated("fma_inst", "FMA instructions executed", "inst"),
        _emulated("barrier_inst", "barriers executed", "inst"),
        _emulated("divergent_branches", "divergent branches", "branch"),
        _static("blocks", "CTAs", "block"),
        _static("threads_per_block", "threads per CTA", "thread"),
        _static("blocks_per_sm", "CTAs per SM", "block"),
        Figure("sass_inst", "instructions in the code", "inst", "", "sass"),
        Figure("sass_tensor", "tensor instructions in the code", "inst", "", "sass"),
        *(
            Figure(key, f"{opcodes[0]} in the code", "inst", "", "sass")
            for key, opcodes in OPCODES.items()
            if key != "sass_tensor"
        ),
    )
}
"""All figures by key. The order is that of reports: what is most telling stands first."""


def of_worst_launch(measured: Iterable[Measurement], key: str) -> float | None:
    """The figure of the static lane, of several launches that of the worst: the case's own is that of the largest grid,
    which may be a copy before the kernel that matters. None where it is unknown of one of them."""
    figure = FIGURES[key]
    own = [m for m in measured if m.metric == key and m.collector == "static"]
    each = [m.value for m in own if m.scope.startswith("kernel ")] if figure.worse else []
    values = each or [m.value for m in own if m.scope == "case"]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if not numbers or len(numbers) < len(values):
        return None
    return min(numbers) if figure.worse == "lower" else max(numbers)
