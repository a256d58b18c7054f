"""Why one of two records takes longer: which counters changed, and where the cycles between them went.

Cycles are split by what the SMs and their warps did. An SM that had no warp was idle; while it had some, its time is
shared out by the reasons that its warps gave (stall shares, which add up to one). A part of the difference is
accounted for where the reason belongs to a pipe, to memory, to barriers or to instructions; what remains of it, and
what goes the other way, is said. Where nothing was measured, the lower bound is split by the work of its pipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgw.errors import NotComparable
from dgw.model import Device, Noun, Record
from dgw.recipes.diagnosis import of
from dgw.recipes.facts import Facts
from dgw.workbench.locked_clock import clock_of

CHANGED = 0.10
"""Relative change of a counter from which it is listed."""

REASONS: Mapping[str, tuple[str, ...]] = {
    "shared memory": ("short_scoreboard", "mio_throttle"),
    "global memory": ("long_scoreboard", "lg_throttle", "drain", "tex_throttle"),
    "barriers": ("barrier", "membar"),
    "multiplying pipes": ("math_pipe_throttle", "gmma"),
    "instructions": ("selected", "not_selected", "dispatch_stall", "no_instruction", "branch_resolving", "imc_miss"),
    "fixed latencies": ("wait",),
}
PIPES: Mapping[str, tuple[str, ...]] = {
    "shared memory": ("shared",),
    "global memory": ("l1", "l2", "dram"),
    "barriers": (),
    "multiplying pipes": ("tensor", "fma"),
    "instructions": ("issue",),
    "fixed latencies": ("issue",),
}
WAITS: Mapping[str, str] = {
    "shared memory": "warps wait for shared memory",
    "global memory": "warps wait for global memory",
    "barriers": "warps wait at barriers",
    "multiplying pipes": "warps wait for a pipe that multiplies",
    "instructions": "warps issue, or are ready to",
    "fixed latencies": "warps wait for the instruction before",
    "idle SMs": "an SM has no warp",
    "other kernels": "kernels beside the largest run",
}
COUNTERS = (
    "inst_executed", "issued", "tensor_inst", "smem_wavefronts_actual", "smem_wavefronts_ideal", "smem_requests_ld",
    "smem_requests_st", "ldsm_inst", "ldgsts_inst", "global_requests_ld", "global_sectors_hw_ld", "global_sectors_ld",
    "global_requests_st", "global_sectors_st", "local_load_sectors", "local_store_sectors", "l2_sectors", "l2_hit_rate",
    "dram_read_bytes", "dram_write_bytes", "dram_bytes", "barrier_inst", "registers_per_thread", "shared_mem_per_block",
    "achieved_occupancy", "blocks", "spill_store_bytes", "sm_clock",
)  # fmt: skip
_SAME = ("device", "driver", "engine")


class Change(Noun, frozen=True, kw_only=True):
    """A counter with different values in both."""

    metric: str
    base: float
    head: float


class Part(Noun, frozen=True, kw_only=True):
    """Cycles of an SM that went one way, in both, and the pipes that belong to it (busy cycles in both).

    `share` of the difference between the two; negative where this part went the other way.
    """

    name: str
    base: float
    head: float
    share: float
    pipes: tuple[Change, ...] = ()
    accounted: bool = True


class Explanation(Noun, frozen=True, kw_only=True):
    """The difference of two records in cycles of an SM, its parts (largest first) and what is left.

    `attributed` is the share of the difference that the parts account for, at most 1; `residual` the rest of it.
    `measured` False: the cycles are lower bounds. `seconds` of both where they were timed.
    """

    base: str
    head: str
    base_cycles: float
    head_cycles: float
    base_seconds: float | None = None
    head_seconds: float | None = None
    measured: bool = True
    parts: tuple[Part, ...] = ()
    changed: tuple[Change, ...] = ()
    attributed: float = 0.0
    residual: float = 1.0

    @property
    def difference(self) -> float:
        """Cycles that the head takes longer."""
        return self.head_cycles - self.base_cycles

    @property
    def sentences(self) -> tuple[str, ...]:
        """In words with numbers: the difference, its parts, what is left, and the counters that changed."""
        return tuple(_sentences(self))


def explain(base: Record, head: Record, device: Device | None = None) -> Explanation:
    """Where the difference between two records of one problem went.

    NotComparable when one of them is not ok, they are of different problems, devices, drivers, engines or locked
    clocks, or one has no cycles.
    """
    _comparable(base, head)
    one, two = (Facts(record, device or of(record)) for record in (base, head))
    if not _known(one) or not _known(two) or one.measured != two.measured:
        lacking = base if not _known(one) else head
        raise NotComparable(
            f"{lacking.case.variant} has no cycles to explain a difference with",
            Facts(lacking, device or of(lacking)).command(("elapsed_cycles", "sm_active_cycles", "std")),
        )
    difference = two.cycles - one.cycles
    split = _split if one.measured else _bound
    first, second = split(one), split(two)
    parts = [_part(name, first, second, one, two, difference) for name in dict.fromkeys((*first, *second))]
    parts.sort(key=lambda part: -abs(part.head - part.base))
    known = sum(part.share for part in parts if part.accounted)
    attributed = max(0.0, min(1.0, known)) if difference else 1.0
    return Explanation(
        base=_name(base, head),
        head=_name(head, base),
        base_cycles=one.cycles,
        head_cycles=two.cycles,
        base_seconds=one.number("time_cold") or one.number("time_hot"),
        head_seconds=two.number("time_cold") or two.number("time_hot"),
        measured=one.measured,
        parts=tuple(parts),
        changed=_changed(one, two),
        attributed=attributed,
        residual=1 - attributed,
    )


def _known(facts: Facts) -> bool:
    """Whether there are cycles to split: counted ones on a GPU, where a time alone has no parts; else a lower bound by
    what was counted, because what the problem alone needs is the same for every kernel."""
    if facts.measured:
        return facts.number("elapsed_cycles") is not None
    return bool(facts.busy.keys() - {"dram"}) and bool(facts.cycles)


def _comparable(base: Record, head: Record) -> None:
    for record in (base, head):
        if record.outcome != "ok":
            why = f"{record.case.variant} is {record.outcome}, so its counters explain nothing"
            raise NotComparable(why, "dgw runs")
    if base.case.problem != head.case.problem:
        raise NotComparable(
            f"{base.case.problem.shape} and {head.case.problem.shape} are different problems",
            "the same --shape for both",
        )
    for name in _SAME:
        mine, theirs = getattr(base.environment, name), getattr(head.environment, name)
        if mine != theirs and mine and theirs:
            why = f"the records are of different {name}s, {mine} and {theirs}"
            raise NotComparable(why, "measure both on one machine")
    clocks = [clock for record in (base, head) if (clock := clock_of(record)) is not None]
    if len(set(clocks)) > 1:
        texts = [f"locked at {clock * 1e-6:.0f} MHz" if clock else "not locked" for clock in clocks]
        why = f"the records were made with SM clocks {' and '.join(texts)}"
        raise NotComparable(why, "measure both with the same --lock-clocks, or both without")


def _name(record: Record, other: Record) -> str:
    """The variant, with what its config has different where both are the same variant."""
    if record.case.variant != other.case.variant:
        return record.case.variant
    mine, theirs = record.case.config, other.case.config
    changed = [f"{key}={value}" for key, value in mine.items() if theirs.get(key) != value]
    return " ".join([record.case.variant, *changed])


def _split(facts: Facts) -> dict[str, float]:
    """Cycles of an SM by what went on; `elsewhere` are reasons that belong to nothing."""
    several = [
        float(m.value)
        for m in facts.record.measurements
        if m.metric == "elapsed_cycles" and m.scope.startswith("kernel ") and isinstance(m.value, int | float)
    ]
    beside = sum(several) - max(several) if len(several) > 1 else 0.0
    rest = facts.cycles - beside
    found = {"other kernels": beside} if beside else {}
    found["idle SMs"] = rest * facts.idle
    active = rest - found["idle SMs"]
    shares = {name: facts.stall(*reasons) for name, reasons in REASONS.items()}
    total = sum(shares.values())
    found |= {name: active * share for name, share in shares.items()}
    found["elsewhere"] = active * max(0.0, 1 - total)
    return found


def _bound(facts: Facts) -> dict[str, float]:
    """The lower bound as the work of the pipe that sets it."""
    pipe, _ = facts.busiest
    owner = next((name for name, pipes in PIPES.items() if pipe in pipes), "elsewhere")
    names = ("shared memory", "global memory", "multiplying pipes")
    return {name: facts.cycles if name == owner else 0.0 for name in names}


def _part(
    name: str, first: Mapping[str, float], second: Mapping[str, float], one: Facts, two: Facts, difference: float
) -> Part:
    base, head = first.get(name, 0.0), second.get(name, 0.0)
    pipes = tuple(
        Change(metric=pipe, base=one.busy.get(pipe, 0.0), head=two.busy.get(pipe, 0.0))
        for pipe in PIPES.get(name, ())
        if pipe in one.busy or pipe in two.busy
    )
    share = (head - base) / difference if difference else 0.0
    warps = (facts.number("achieved_occupancy") or 0.0 for facts in (one, two))
    accounted = _accounted(name, pipes, base, head, *warps)
    return Part(name=name, base=base, head=head, share=share, pipes=pipes, accounted=accounted)


def _accounted(
    name: str, pipes: Sequence[Change], base: float, head: float, warps_base: float, warps_head: float
) -> bool:
    """Whether a part says why: fixed latencies do only where there are more instructions to wait for, or fewer warps
    to wait at the same time."""
    if name == "elsewhere":
        return False
    if name == "fixed latencies":
        longer = head - base
        more = any((pipe.head - pipe.base) * longer > CHANGED * pipe.base * abs(longer) for pipe in pipes)
        fewer = (warps_head - warps_base) * longer < 0
        return more or (fewer and abs(warps_head - warps_base) > CHANGED * max(warps_base, warps_head))
    return True


def _changed(one: Facts, two: Facts) -> tuple[Change, ...]:
    found = []
    for metric in COUNTERS:
        base, head = one.number(metric), two.number(metric)
        if base is None or head is None or abs(head - base) <= CHANGED * max(abs(base), abs(head)):
            continue
        found.append(Change(metric=metric, base=base, head=head))
    return tuple(sorted(found, key=lambda c: -(max(c.base, c.head) + 1) / (min(c.base, c.head) + 1)))


def _figure(value: float) -> str:
    """Three digits, or all before the point: cycles and bytes are compared by people, who do not read exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _sentences(found: Explanation) -> list[str]:
    times = found.head_cycles / found.base_cycles
    seconds = ""
    if found.base_seconds and found.head_seconds:
        seconds = f"; {found.head_seconds * 1e6:.4g} us and {found.base_seconds * 1e6:.4g} us"
    what = "cycles" if found.measured else "cycles at least (a lower bound)"
    lines = [
        f"{found.head} takes {_figure(found.head_cycles)} {what} where {found.base} takes {_figure(found.base_cycles)} "
        f"({times:.2f} times{seconds})."
    ]
    for part in found.parts:
        if abs(part.share) < 0.02 or not found.difference:
            continue
        moved = part.head - part.base
        what = WAITS.get(part.name, "warps wait for other reasons") if found.measured else f"{part.name} takes"
        line = (
            f"{100 * part.share:+.0f} % of the difference: {what} {'+' if moved >= 0 else ''}{_figure(moved)} cycles "
        )
        line += f"({_figure(part.base)} to {_figure(part.head)})"
        busy = [
            f"{p.metric} is busy {_figure(p.head)} instead of {_figure(p.base)} cycles"
            for p in part.pipes
            if p.base != p.head
        ]
        lines.append(f"{line}{'; ' + ', '.join(busy) if busy else ''}.")
    if found.difference:
        shares = (100 * found.attributed, 100 * found.residual)
        lines.append("Accounted for: {:.0f} % of the difference; residual {:.0f} %.".format(*shares))
    counters = [f"{c.metric} {_figure(c.base)} to {_figure(c.head)}" for c in found.changed[:8]]
    lines.append(f"Counters that changed most: {', '.join(counters)}." if counters else "No counter changed by 10 %.")
    return lines
