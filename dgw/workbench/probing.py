"""What GPU there is, asked of a child, because only children open one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dgw import __version__
from dgw.errors import ChildFault, Missing
from dgw.model import Device, Environment, Noun, digest
from dgw.workbench.children import Child
from dgw.workbench.protocol import ChildJob, Hello, Unavailable
from dgw.workbench.slots import Slot


def probe(
    child_argv: Sequence[str], deadline_s: float = 60.0, environment: Mapping[str, str] | None = None
) -> tuple[Environment, Device]:
    """What GPU a child sees, with these variables added to its environment.

    Raises Missing when there is none, ChildFault when the child does not answer.
    """
    around = {**os.environ, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="dgw-") as folder:
        child = Child(child_argv, ChildJob(kind="probe"), Path(folder), environment=around)
        answer: tuple[Environment, Device] | None = None
        missing = ""
        try:
            for message in child.messages(deadline_s, deadline_s):
                if isinstance(message, Hello):
                    answer = (message.environment, message.device)
                elif isinstance(message, Unavailable):
                    missing = message.reason
        finally:
            end = child.finish()
    if missing:
        raise Missing(f"no GPU can be used: {missing}", "dgw doctor, or --engine emulator")
    if answer is None:
        raise ChildFault(f"the child process did not answer: {end.describe(deadline_s)}", "dgw doctor")
    return answer


class Answer(Noun, frozen=True, kw_only=True):
    """What a child said of a GPU."""

    environment: Environment
    device: Device


def known(child_argv: Sequence[str], slot: Slot, folder: Path) -> tuple[Environment, Device]:
    """As `probe` of the GPU in `slot`; asked once for each GPU, driver and set of packages, and kept in `folder`.

    A GPU of which nothing tells the driver is always asked.
    """
    kept = folder / f"gpu-{_situation(slot)}.json"
    if slot.uuid and slot.driver:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            answer = msgspec.json.decode(kept.read_bytes(), type=Answer)
            return answer.environment, answer.device
    environment, device = probe(child_argv, environment=slot.environment)
    if slot.uuid and slot.driver:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            draft = kept.with_name(f".{kept.name}.{os.getpid()}")
            draft.write_bytes(msgspec.json.encode(Answer(environment=environment, device=device)))
            draft.replace(kept)
    return environment, device


def _situation(slot: Slot) -> str:
    """All that an answer depends on."""
    from dgw.workbench.environment import cublas_version, host_environment

    return digest([slot.uuid, slot.driver, __version__, host_environment(), cublas_version()])[:16]
