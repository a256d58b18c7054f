"""All cases of a sweep compiled before anything is launched, and those that come to the same machine code found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dgw.model import Case, Device, Record, Variant, digest
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
    warm_cache(((case, variants[case.variant]) for case in cases), device, cache, on_done=compiled)
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda case: prepare(case, variants[case.variant], device, cache), cases)
        return {case.key: one for case, one in zip(cases, found, strict=True)}


def code_of(prepared: Prepared) -> str:
    """What is executed for a case: problem, code sections, and launches as the driver sees them. Empty: unknown."""
    plan = prepared.plan
    if plan is None or not prepared.runnable:
        return ""
    launches = [
        [prepared.builds[step.source].code_hash, step.entry, step.grid, step.block, step.cluster, step.shared_bytes,
         step.arguments]
        for step in plan.launches
    ]  # fmt: skip
    others = [step for step in plan.steps if step not in plan.launches]
    return digest([prepared.record.case.problem, launches, others, plan.workspaces])


def twins(prepared: Mapping[str, Prepared]) -> dict[str, str]:
    """The cases that execute exactly what an earlier one does: key -> key of that one."""
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for key, one in prepared.items():
        code = code_of(one)
        if code and first.setdefault(code, key) != key:
            found[key] = first[code]
    return found


def twin_record(of: Record, own: Record) -> Record:
    """The record of a case that was not measured because it executes what `of` did."""
    differs = [f"{name}={value}" for name, value in of.case.config.items() if own.case.config.get(name) != value]
    note = f"measured once, as {','.join(differs) or of.case.variant}: the same machine code and launch"
    return msgspec.structs.replace(
        of, case=own.case, plan=own.plan, resume_key=own.resume_key, artifacts=(), flags=(*of.flags, note)
    )
