"""How much faster each rung of a ladder is than the last and the baseline, and how near to the rate of mma.sync.

Pure functions of stored records.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgw.model import Device, Evidence, Finding, Measurement, Record

RECIPE = "ladder"
TIMES = ("time_cold", "time_hot")
PREVIOUS, BASELINE, RATE = "speedup_over_previous", "ratio_to_baseline", "share_of_mma_rate"


def ladder(
    records: Sequence[Record],
    device: Device | None = None,
    baseline: str = "baselines/cublas",
    mma_rate: float | None = None,
) -> tuple[Finding, ...]:
    """A Finding for every rung among `records`, one problem's ladder in order, lowest first, baselines anywhere.

    Its evidence: speed-up over the rung before (of the same family), the baseline's time over its own, and its share
    of the mma.sync rate (`mma_rate` in FLOP/s, measured in the same run; else what `device` says). All are
    ratios, above 1 is faster; one that is not known has no value and says why.
    """
    base = next((r for r in records if r.case.variant == baseline), None)
    found: list[Finding] = []
    before: dict[str, Record] = {}
    for record in records:
        family = record.case.variant.partition("/")[0]
        if family == "baselines" or record.outcome == "refused":
            continue
        evidence = (
            _quotient(PREVIOUS, before.get(family), record, "the first rung has none before it"),
            _against_baseline(base, record, baseline),
            _share(record, device, mma_rate),
        )
        previous = before[family].case.variant if family in before else ""
        found.append(Finding(recipe=RECIPE, verdict=_say(record, evidence, previous, baseline), evidence=evidence))
        before[family] = record
    return tuple(found)


def _time(record: Record, like: Measurement | None = None) -> Measurement | None:
    """The time of one GEMM in s, cold where it is known; with `like`, of the same metric and protocol."""
    if record.outcome != "ok":
        return None
    for metric in TIMES if like is None else (like.metric,):
        found = record.get(metric)
        if found is None or not isinstance(found.value, int | float) or found.value <= 0:
            continue
        if like is None or found.protocol == like.protocol:
            return found
    return None


def _quotient(metric: str, slower: Record | None, record: Record, nothing: str) -> Evidence:
    """The time of `slower` over that of `record`."""
    if slower is None:
        return Evidence(metric=metric, value=None, why=nothing)
    own = _time(record)
    if own is None:
        return Evidence(metric=metric, value=None, why=_untimed(record))
    other = _time(slower, own)
    if other is None:
        return Evidence(metric=metric, value=None, why=_untimed(slower))
    mine, theirs = record.environment, slower.environment
    if (mine.device, mine.driver) != (theirs.device, theirs.driver):
        return Evidence(
            metric=metric, value=None, why=f"measured on {mine.device} and {theirs.device}, or other drivers"
        )
    return Evidence(metric=metric, value=float(other.value or 0) / float(own.value or 1), why=own.metric)


def _against_baseline(base: Record | None, record: Record, name: str) -> Evidence:
    paired = record.number("ratio_to_cublas") if name == "baselines/cublas" else None
    if paired is not None and record.outcome == "ok":
        return Evidence(metric=BASELINE, value=paired, threshold=1.0, why="measured in turn with it")
    return _quotient(BASELINE, base, record, f"needs a record of {name}")


def _share(record: Record, device: Device | None, mma_rate: float | None) -> Evidence:
    dtype = record.case.problem.a.dtype
    rate = mma_rate or (_mma_rate(device, dtype) if device is not None else None)
    own = _time(record)
    if rate is None:
        return Evidence(metric=RATE, value=None, why=f"the mma.sync rate for {dtype} is not known")
    if own is None:
        return Evidence(metric=RATE, value=None, why=_untimed(record))
    share = record.case.problem.flops / float(own.value or 1) / rate
    return Evidence(metric=RATE, value=share, why=f"mma.sync: {rate:.4g} FLOP/s")


def _mma_rate(device: Device, dtype: str) -> float | None:
    """FLOP/s of mma.sync: measured where that is known, else SMs x FLOP per clock x clock."""
    measured = device.measured.get(f"mma_{dtype}")
    per_clock = device.mma_flops_per_sm_per_clock.get(dtype)
    return measured or (device.sms * per_clock * device.clock_hz if per_clock else None)


def _untimed(record: Record) -> str:
    if record.outcome != "ok":
        return f"{record.case.variant} is {record.outcome}"
    for metric in TIMES:
        found = record.get(metric)
        if found is not None and found.absent:
            return f"the time of {record.case.variant} is {found.absent}"
    return f"needs a time of {record.case.variant} of the same protocol"


def _say(record: Record, evidence: Sequence[Evidence], previous: str, baseline: str) -> str:
    words = {
        PREVIOUS: f"{{:.2f}} x {previous}",
        BASELINE: f"{{:.3f}} of {baseline}",
        RATE: "{:.3f} of the mma.sync rate",
    }
    known = [words[e.metric].format(e.value) for e in evidence if isinstance(e.value, float)]
    return f"{record.case.variant}: {', '.join(known) or 'no time is known'}"
