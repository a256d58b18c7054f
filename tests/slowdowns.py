"""Slowdowns for the time gate: the same name on both sides, a good kernel in base and its defective copy in head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dgw.kernels.declaring import INCLUDE
from dgw.kernels.loader import load
from dgw.model import Variant
from tests.bottlenecks.declaring import tensor
from tests.bottlenecks.plants import declare

LINE = "from tests.slowdowns import side\n\nVARIANT = side({name!r}, {which!r})\n"


@dataclass(frozen=True)
class Slowdown:
    """One planted slowdown: what it is, at which shape, and the metrics of which one has to be among what changed."""

    what: str
    shape: str
    explained_by: tuple[str, ...]
    options: tuple[str, ...] = ()


WORK = "4096x4096x3200"  # k tiles of 32: a hundred of them
SLOWDOWNS: Mapping[str, Slowdown] = {
    "extra-2": Slowdown("2 % of extra work", WORK, ("tensor_inst", "inst_executed")),
    "extra-5": Slowdown("5 % of extra work", WORK, ("tensor_inst", "inst_executed")),
    "dropped-swizzle": Slowdown(
        "a dropped swizzle", "", ("conflict_ratio_ld", "smem_wavefronts_actual"), ("--suite", "seeds")
    ),
    "spilled": Slowdown("a config that spills", WORK, ("spill_store_bytes", "local_store_sectors")),
    "unfused": Slowdown(
        "an epilogue in passes of its own", "4096x4096x512", ("dram_bytes", "dram_write_bytes", "global_sectors_st"),
        ("--bias", "--activation", "gelu"),
    ),
}  # fmt: skip


def side(name: str, which: str) -> Variant:
    """The kernel of one side (`base` or `head`) of a slowdown, as `planted/NAME`."""
    head = which == "head"
    if name == "dropped-swizzle":
        stages = load()
        found = stages["cuda/tiled"] if head else stages["cuda/swizzled"]
    elif name.startswith("extra-"):
        found = declare("square")  # k tiles of 32: 100 of them at k = 3200
        found = replace(found, plan=tensor({"EXTRA_TILES": int(name.removeprefix("extra-"))})) if head else found
    else:
        good, bad = {"spilled": ("tensor", "capped"), "unfused": ("fused", "passes")}[name]
        found = declare(bad if head else good)
    includes = found.includes or (INCLUDE,)
    return replace(found, id=f"planted/{name}", version=1, stage=None, claims=(), includes=includes)


def write(folder: Path, which: str) -> None:
    """A folder of declarations of all slowdowns, for one side."""
    folder.mkdir(parents=True)
    for name in SLOWDOWNS:
        (folder / f"{name.replace('-', '_')}.py").write_text(LINE.format(name=name, which=which))
