"""Sequences: lists of questions in an order that somebody found good. They ask for measurements and never make them.

A sequence is a generator. It yields a :class:`Request` and is sent the records that answer it, or it yields a
Step: what was seen, whether to go on, and why. :func:`walk` is the loop between it and whoever can measure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dgw.model import Case, Config, Device, Evidence, Problem, Record, Step, Tunable
from dgw.recipes.facts import Facts
from dgw.recipes.retyping import STATIC, TIMED, TIMELINE

Engine = Literal["gpu", "emulator", "static"]
LANES = frozenset({"check", "time", "counters"})
TIMED_ONLY = frozenset({"check", "time"})
COUNTED_ONLY = frozenset({"counters"})


@dataclass(frozen=True)
class Rung:
    """A stage that could take the place of a kernel: `family`, place in its ladder, tunables with their defaults."""

    variant: str
    version: int
    stage: int
    config: Config
    family: str = ""

    @property
    def idea(self) -> str:
        """The part of the id after the slash."""
        return self.variant.partition("/")[2]


@dataclass(frozen=True)
class Start:
    """What a sequence begins with: a case, its tunables, where it runs, and the stages of its ladder that run there.

    `beside`: the top of every other ladder, which is shown and never taken. `accepts` says whether the variant of a
    case takes it at all. `own`: the kernel is the user's, so every stage is only shown beside it.
    """

    case: Case
    device: Device
    engine: Engine
    space: tuple[Tunable, ...] = ()
    rungs: tuple[Rung, ...] = ()
    beside: tuple[Rung, ...] = ()
    own: bool = False
    accepts: Callable[[Case], bool] = field(default=lambda case: True, compare=False)


@dataclass(frozen=True)
class Request:
    """Cases to run, and with which lanes and metrics; `sanitise` names tools of compute-sanitizer. Why, in words.

    On a GPU, cases that were timed before are timed once more with `again`, in turn with the others: times that were
    taken at different moments are not compared. With the lane `counters` alone, counters are added to what is known.
    """

    cases: tuple[Case, ...]
    why: str
    lanes: frozenset[str] = LANES
    metrics: tuple[str, ...] = ()
    sanitise: tuple[str, ...] = ()
    again: bool = False


Talk = Generator[Request | Step, tuple[Record, ...], None]
Sequence_ = Callable[[Start], Talk]


def walk(talk: Talk, fulfil: Callable[[Request], Sequence[Record]], show: Callable[[Step], None]) -> list[Step]:
    """Run a sequence to its end or to the first step that says stop; the steps."""
    steps: list[Step] = []
    answer: tuple[Record, ...] = ()
    try:
        item = next(talk)
        while True:
            if isinstance(item, Request):
                answer = tuple(fulfil(item))
            else:
                show(item)
                steps.append(item)
                answer = ()
                if item.decision == "stop":
                    talk.close()
                    break
            item = talk.send(answer)
    except StopIteration:
        pass
    return steps


def metrics() -> tuple[str, ...]:
    """What a record needs so that every recipe can tell, apart from what the other lanes measure anyway."""
    from dgw.recipes.registry import needs
    from dgw.workbench.metrics import METRICS

    others = (*TIMED, *TIMELINE, *STATIC)
    counted = [name for name in needs() if name in METRICS and METRICS[name].from_ncu and name not in others]
    looked_at = ("ldgsts_inst", "wgmma_inst", "tma_inst", "smem_wavefronts_sass_ldgsts", "smem_bank_conflicts_ldgsts")
    rest = (
        "gld_bytes_per_sector",
        "l1_tag_requests_global",
        "global_sectors_hw_st",
        "stall_samples",
        "inst_per_opcode",
    )
    return tuple(dict.fromkeys(("std", *counted, *looked_at, *rest)))


NOT_RUN = "not checked"


def untested(record: Record) -> str:
    """What a record that nothing was executed for cannot tell, in a sentence; empty for one that was."""
    if record.check is not None or record.outcome != "ok":
        return ""
    why = next((flag.rpartition("counted: ")[2] for flag in record.flags if flag.startswith(NOT_RUN)), "")
    reason = f" ({why})" if why else ""
    return (
        f"nothing was executed{reason}: registers, spills, occupancy and a lower bound are facts of the compiled code "
        "and the problem; whether the result is right, and everything that is counted, takes a GPU"
    )


def unanswered(record: Record, device: Device, names: Sequence[str]) -> str:
    """Which of these recipes the record is not enough for; empty when it is for all."""
    from dgw.recipes.diagnosis import diagnose, untold

    told = [finding.recipe for finding in diagnose(record, device) if untold(finding) and finding.recipe in names]
    return f"cannot be told here: {', '.join(sorted(told))}" if told else ""


def speed(record: Record) -> tuple[str, float] | None:
    """The figure by which two records of a sequence are compared: cold time, hot time, or the lower bound."""
    for name in ("time_cold", "time_hot", "bound_time"):
        value = record.number(name)
        if value is not None and record.outcome == "ok":
            return name, value
    return None


def faster(candidate: Record, current: Record, by: float = 0.01) -> bool:
    """Whether the candidate beats the current record in the same figure, by more than a hundredth."""
    one, two = speed(candidate), speed(current)
    return one is not None and two is not None and one[0] == two[0] and one[1] < two[1] * (1 - by)


def figure(record: Record) -> str:
    """The speed of a record in words."""
    found = speed(record)
    if found is None:
        return record.outcome
    name, value = found
    words = {"time_cold": "cold", "time_hot": "hot", "bound_time": "at least (lower bound)"}
    text = f"{value * 1e3:.4g} ms" if value >= 1e-3 else f"{value * 1e6:.4g} us"
    return f"{text} {words[name]}"


def evidence(record: Record, device: Device, *names: str) -> tuple[Evidence, ...]:
    """The metrics that the record knows, of those named."""
    facts = Facts(record, device)
    return tuple(facts.evidence(name) for name in names if facts.number(name) is not None)


def with_problem(case: Case, problem: Problem) -> Case:
    """The same kernel on another problem."""
    return Case(problem=problem, variant=case.variant, version=case.version, config=case.config)


def with_config(case: Case, config: Mapping[str, int | str]) -> Case:
    """The same kernel with other tunables."""
    return Case(problem=case.problem, variant=case.variant, version=case.version, config={**case.config, **config})
