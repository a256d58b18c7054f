"""The counter gate: what ncu counts of both sides, which counters repeat exactly on this GPU, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dgw.model import Measurement, Noun
from dgw.workbench.children import Child
from dgw.workbench.collectors.ncu_combine import NO_ACCESS
from dgw.workbench.counters import CHUNK, CounterLane
from dgw.workbench.gate.figures import of_worst_launch
from dgw.workbench.gate.sides import SideSetup
from dgw.workbench.gate.verdict import Change
from dgw.workbench.passes import grouped
from dgw.workbench.protocol import Bye, ChildJob, Group, Member

COUNTERS = (
    "conflict_ratio_ld", "conflict_ratio_st", "smem_bank_conflicts_ldsm", "smem_bank_conflicts_ldgsts",
    "smem_wavefronts_actual", "smem_wavefronts_ideal", "local_load_sectors", "local_store_sectors", "inst_executed",
    "tensor_inst", "global_sectors_ld", "global_sectors_st", "l2_sectors", "dram_read_bytes", "dram_write_bytes",
    "dram_bytes",
)  # fmt: skip
"""What a gate counts: conflicts, spills that were executed, instructions, and traffic at each level."""
CONFLICTS = ("conflict_ratio_ld", "conflict_ratio_st", "smem_bank_conflicts_ldsm", "smem_bank_conflicts_ldgsts")
SPILLS = ("spill_store_bytes", "spill_load_bytes")
LOCAL = ("local_load_sectors", "local_store_sectors")
_KINDS = (
    (CONFLICTS, ("smem_wavefronts_actual",), ("smem_wavefronts_ideal",)),
    (SPILLS, SPILLS, ()),
    (LOCAL, LOCAL, ()),
)  # fmt: skip
"""Figures of which more is plainly worse, by kind, and what makes all of a kind together: a sum, less another one."""
NEVER_MORE = frozenset({*CONFLICTS, *SPILLS, *LOCAL})
"""A rise of one of these, compared exactly, fails the gate. Everything else is reported and judges nothing: other code
may have more instructions, sectors or registers with good reason, and its time is measured."""
STATIC = (
    "registers_per_thread", "spill_store_bytes", "spill_load_bytes", "shared_mem_per_block", "theoretical_occupancy",
    "blocks_per_sm", "blocks", "threads_per_block",
)  # fmt: skip
CALIBRATIONS = 10
"""Repeats after which a counter that never moved is called constant."""
BAND = 0.01
BAND_MADS = 6.0
_PATIENCE = 3.0


class Calibration(Noun, frozen=True, kw_only=True):
    """Which counters repeat exactly on one GPU model, driver and ncu, over `repeats` runs of `cases` cases.

    `bands` has for every other one the relative distance that still counts as the same: max(1 %, 6 MAD).
    """

    device: str
    driver: str
    ncu: str
    repeats: int
    cases: int
    constant: tuple[str, ...]
    bands: dict[str, float]

    @property
    def says(self) -> str:
        """In words."""
        return f"{len(self.constant)} counters are constant over {self.repeats} repeats of {self.cases} cases"


class Counts(Noun, frozen=True, kw_only=True):
    """What was counted of each case, one list of measurements a repeat; or why nothing was (`absent`)."""

    cases: dict[str, tuple[tuple[Measurement, ...], ...]] = {}
    absent: str = ""


def count(
    lane: CounterLane,
    side: SideSetup,
    members: Mapping[str, Member],
    device_code: dict[str, str],
    folder: Path,
    variables: Mapping[str, str],
    deadline_s: float,
    repeats: int = 1,
) -> Counts:
    """Launch every member `repeats` times under the profiler. Never raises for what a profiler does."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = list(members)
    found: dict[str, tuple[tuple[Measurement, ...], ...]] = {}
    why = ""
    while keys:
        chunk, keys = keys[:CHUNK], keys[CHUNK:]
        part = {key: members[key] for key in chunk}
        for attempt in range(2):  # the lane may ask for less and try again
            report = folder / f"{side.name}-{len(found)}-{attempt}.ncu-rep"
            job = ChildJob(kind="profile", groups=_groups(part.values(), repeats), device_code=device_code)
            harvest = lane.harvest(report, *_profile(lane, side, job, report, variables, deadline_s))
            if not harvest.retry:
                break
        why = harvest.reason or why
        for key in chunk:
            kernels = list(harvest.kernels.get(part[key].case.key, ()))
            if kernels and len(kernels) % repeats == 0:
                size = len(kernels) // repeats
                parts = [kernels[at : at + size] for at in range(0, len(kernels), size)]
                found[key] = tuple(lane.measurements(one, "") for one in parts)
        if harvest.fatal:
            break
    return Counts(cases=found, absent="" if found else why or "the profiler's report holds no case")


def _groups(members: Any, repeats: int) -> tuple[Group, ...]:
    """Every repeat goes over all cases, so that repeats are apart in time."""
    return grouped(list(members)) * repeats


def _profile(
    lane: CounterLane,
    side: SideSetup,
    job: ChildJob,
    report: Path,
    variables: Mapping[str, str],
    deadline_s: float,
) -> tuple[str, int | None]:
    scratch = report.parent / "scratch"
    environment = lane.environment(side.variables(variables), scratch)
    child = Child(side.child_argv, job, report.with_suffix(""), lane.command(report), environment)
    try:
        for message in child.messages(deadline_s * _PATIENCE, deadline_s * _PATIENCE * 2):
            if isinstance(message, Bye) and message.context_lost:
                break
    finally:
        end = child.finish()
    return end.output, end.status


def calibrate(counts: Counts, device: str, driver: str, ncu: str) -> Calibration:
    """What the repeats of one side say of each counter. A counter is constant when it moved in no case at all."""
    values: dict[str, list[list[float]]] = {}
    repeats = 0
    for runs in counts.cases.values():
        repeats = max(repeats, len(runs))
        for metric in {m.metric for run in runs for m in run}:
            series = [number for run in runs if (number := _number(run, metric)) is not None]
            if len(series) == len(runs):
                values.setdefault(metric, []).append(series)
    constant = [metric for metric, all_series in values.items() if all(len(set(series)) == 1 for series in all_series)]
    bands = {
        metric: max(BAND, *(_mads(series) for series in all_series))
        for metric, all_series in values.items()
        if metric not in constant
    }
    return Calibration(
        device=device,
        driver=driver,
        ncu=ncu,
        repeats=repeats,
        cases=len(counts.cases),
        constant=tuple(sorted(constant)),
        bands=dict(sorted(bands.items())),
    )


def _mads(series: Sequence[float]) -> float:
    middle = median(series)
    if middle == 0:
        return 1.0 if any(series) else 0.0
    return BAND_MADS * median(abs(value - middle) for value in series) / abs(middle)


def _number(measured: Sequence[Measurement], metric: str) -> float | None:
    for found in measured:
        if found.metric == metric and found.scope == "case":
            return float(found.value) if isinstance(found.value, int | float) else None
    return None


def _figure(measured: Sequence[Measurement], metric: str) -> float | None:
    """What a case has of a metric; of what a launch needs the worst launch's. Without accesses there is no conflict."""
    found = of_worst_launch(measured, metric) if metric in STATIC else None
    if found is None and metric in CONFLICTS and any(m.metric == metric and _untouched(m) for m in measured):
        return 0.0
    return _number(measured, metric) if found is None else found


def _untouched(found: Measurement) -> bool:
    return found.scope == "case" and found.value is None and found.absent.startswith(NO_ACCESS)


def changes(
    base: Sequence[Measurement], head: Sequence[Measurement], calibration: Calibration | None, faster: bool = False
) -> tuple[Change, ...]:
    """What differs, the worst first. Static figures and constant counters are compared exactly, the rest in a band.

    With `faster` (head is proven to take less time) conflicts and spills that base had already may have grown; new ones
    fail all the same.
    """
    found = []
    names = dict.fromkeys(m.metric for m in (*base, *head) if m.metric in STATIC or m.metric in COUNTERS)
    for metric in names:
        before, after = (_figure(side, metric) for side in (base, head))
        if before is None or after is None or before == after:
            continue
        exact = _exactly(metric, before, calibration)
        band = calibration.bands.get(metric, BAND) if calibration is not None else BAND
        if not exact and abs(after - before) <= band * abs(before):
            continue
        unit = next((m.unit for m in (*base, *head) if m.metric == metric), "")
        worse = exact and metric in NEVER_MORE and after > before and not _only_moved(metric, base, head)
        worse = worse and (before == 0 or not faster)
        found.append(
            Change(metric=metric, base=before, head=after, unit=unit, rule="exact" if exact else "band", worse=worse)
        )
    return tuple(sorted(found, key=_telling))


def _exactly(metric: str, before: float, calibration: Calibration | None) -> bool:
    """Whether any difference is one: of what the compiler says, of what never moved on this GPU, and of conflicts and
    spills out of nothing, unless they were seen to move there."""
    if metric in STATIC or (calibration is not None and metric in calibration.constant):
        return True
    moves = calibration is not None and metric in calibration.bands
    return metric in NEVER_MORE and before == 0 and not moves


def _only_moved(metric: str, base: Sequence[Measurement], head: Sequence[Measurement]) -> bool:
    """Whether base had some of this kind, and head has not more of it altogether, as where stores conflict in the place
    of loads. A sum that is unknown, or that does not know what base had, excuses nothing."""
    kind, plus, minus = next(one for one in _KINDS if metric in one[0])
    if not any(_figure(base, name) for name in kind):
        return False
    sums = []
    for side in (base, head):
        parts = [(sign, _figure(side, name)) for sign, names in ((1, plus), (-1, minus)) for name in names]
        known = [sign * value for sign, value in parts if value is not None]
        if len(known) < len(parts):
            return False
        sums.append(sum(known))
    return sums[0] > 0 and sums[1] <= sums[0]


def _telling(change: Change) -> tuple[bool, float]:
    """What fails comes first, then what changed by the largest factor."""
    before, after = float(change.base or 0), float(change.head or 0)
    low, high = sorted((abs(before), abs(after)))
    return (not change.worse, -(high / low if low else float("inf")))


Explain = Callable[[Any, Any], tuple[str, ...]]
"""From the records of base and head to sentences; the recipes' work, handed in by the command."""
