"""A sweep without a GPU: the emulator on every core, a case at a time."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import msgspec

from dgw.commands.session import Session, cache_folder
from dgw.model import Case, Device, Noun, Record, Variant

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Setup(Noun, frozen=True, kw_only=True):
    """What a worker has to know to emulate a case."""

    device: Device
    cache: str
    kind: Literal["emulator", "static"]
    reason: str
    full_grid: bool = False
    extra: tuple[str, ...] = ()


def emulate(
    session: Session, cases: Sequence[Case], keep: Callable[[Record], None], doing: Callable[[str], None]
) -> None:
    """Give every case to `keep` as it is finished; in this process where there is little to do or but one core."""
    from dgw.commands.request import extra_paths

    machine, ask = session.machine, session.ask
    setup = Setup(
        device=machine.device,
        cache=str(cache_folder().absolute()),
        kind="emulator" if machine.engine == "emulator" else "static",
        reason=machine.reason,
        full_grid=ask.full_grid,
        extra=tuple(map(str, extra_paths(ask.kernels, ask.kernel))),
    )
    doing("emulating" if setup.kind == "emulator" else "static facts")
    cores = len(os.sched_getaffinity(0))
    if setup.kind == "static" or len(cases) < 3 or cores < 2:
        for case in cases:
            keep(_one(setup, case))
        return
    with ProcessPoolExecutor(
        min(cores, len(cases)), mp_context=get_context("spawn"), initializer=_begin_worker
    ) as pool:  # fmt: skip
        try:
            told = msgspec.json.encode(setup)
            for future in as_completed([pool.submit(_elsewhere, told, msgspec.json.encode(case)) for case in cases]):
                keep(msgspec.json.decode(future.result(), type=Record))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin_worker() -> None:
    """Ctrl-C is the parent's to handle, and a worker does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


@functools.lru_cache(maxsize=1)
def library_of(extra: tuple[str, ...]) -> Mapping[str, Variant]:
    """In a worker: every variant there is, with those of the user's own folders and files; loaded once."""
    from dgw.kernels.loader import load

    return load(tuple(map(Path, extra)))


def _elsewhere(setup: bytes, case: bytes) -> bytes:
    """Nouns travel as JSON: pickled ones would not leave out their defaults any more, and have another key."""
    found = _one(msgspec.json.decode(setup, type=Setup), msgspec.json.decode(case, type=Case))
    return msgspec.json.encode(found)


def _one(setup: Setup, case: Case) -> Record:
    from dgw.commands.without_gpu import CpuEngine

    engine = CpuEngine(
        library_of(setup.extra), setup.device, Path(setup.cache), setup.kind, setup.reason, full_grid=setup.full_grid,
        strict=True,
    )  # fmt: skip
    found: list[Record] = []
    engine.run([case], found.append, lambda *_: None)
    return found[0]
