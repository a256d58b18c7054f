"""The children of a run, one after another: each does a job, and one that lingers may be given the next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dgw.errors import ChildFault
from dgw.workbench.children import Child, End
from dgw.workbench.protocol import Bye, ChildJob, Message, Pause
from dgw.workbench.slots import Held


@dataclass
class Succession:
    """Starts children of `argv` in folders of their own; `held` is the GPU that they shall see.

    `deadline_s` is the longest silence of a child, `start_s` the longest before its first word.
    """

    argv: Sequence[str]
    folder: Path
    deadline_s: float
    start_s: float
    lingers: bool = False
    held: Held = field(default_factory=Held)
    started: int = 0
    _idle: Child | None = None

    def listen(
        self,
        job: ChildJob,
        hear: Callable[[Message], None],
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        patience: float = 1.0,
    ) -> End:
        """Run one job to its end; `hear` gets every message. `patience` multiplies the deadlines."""
        return self.hear(self.start(job, prefix, environment), hear, bool(prefix), patience)

    def hear(self, child: Child, hear: Callable[[Message], None], to_the_exit: bool, patience: float = 1.0) -> End:
        """Hear a child that was started to the end of its job, or to its exit, after which a report is complete."""
        waits = False
        try:
            for message in child.messages(self.deadline_s * patience, self.start_s * patience):
                hear(message)
                if isinstance(message, Pause):
                    child.go_on()
                if isinstance(message, Bye) and not to_the_exit:
                    waits = message.lingers
                    break  # nothing more to come; without a profiler there is no report to wait for
        finally:
            end = child.end() if waits else child.finish()
            self._idle = child if waits else None
        return end

    def start(self, job: ChildJob, prefix: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """The child that waits, with this job, or a new one."""
        job = msgspec.structs.replace(job, lingers=self.lingers and not prefix)
        if self._idle is not None and not prefix:
            with contextlib.suppress(ChildFault):  # it has ended meanwhile
                self._idle.give(job)
                return self._idle
        self.dismiss()
        self.started += 1
        around = {**(os.environ if environment is None else environment), **self.held.environment}
        keep_open = () if prefix else self.held.keep_open  # tools leave daemons behind, which would hold it for ever
        return Child(self.argv, job, self.folder / f"child-{self.started}", prefix, around, keep_open=keep_open)

    def dismiss(self) -> None:
        """End the child that waits, if there is one."""
        if self._idle is not None:
            self._idle.finish()
        self._idle = None
