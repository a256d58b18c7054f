"""All cases of a sweep compiled before anything is launched, and those that come to the same machine code found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dgw.model import Case, Device, Problem, Record, Variant
from dgw.toolchain.cache import CompileCache
from dgw.workbench.prepare import Prepared, prepare, warm_cache

Progress = Callable[[int, int, str], None]


def prepare_all(
    cases: Sequence[Case], variants: Mapping[str, Variant], device: Device, cache: CompileCache, progress: Progress
) -> dict[str, Prepared]:
    """Every case by its key, ready to run or with the reason why not; the compiler runs on all cores."""
    done = 0

    def compiled() -> None:
        nonlocal done
        done += 1
        progress(min(done, len(cases)), len(cases), "compiling")

    progress(0, len(cases), "compiling")
    recent = warm_cache(((case, variants[case.variant]) for case in cases), device, cache, on_done=compiled)
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda case: prepare(case, variants[case.variant], device, recent), cases)
        return {case.key: one for case, one in zip(cases, found, strict=True)}


def twins(prepared: Mapping[str, Prepared]) -> dict[str, str]:
    """The cases that execute exactly what an earlier one does: key -> key of that one."""
    first: dict[tuple[Problem, str], str] = {}
    found: dict[str, str] = {}
    for key, one in prepared.items():
        executed = one.record.case.problem, one.identity
        if one.identity and first.setdefault(executed, key) != key:
            found[key] = first[executed]
    return found


def twin_record(of: Record, own: Record) -> Record:
    """The record of a case that was not measured because it executes what `of` did."""
    differs = [f"{name}={value}" for name, value in of.case.config.items() if own.case.config.get(name) != value]
    note = f"measured once, as {','.join(differs) or of.case.variant}: the same machine code and launch"
    return msgspec.structs.replace(
        of, case=own.case, plan=own.plan, resume_key=own.resume_key, artifacts=(), flags=(*of.flags, note)
    )
