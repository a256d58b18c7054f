"""One child process: started in a session of its own, heard on a FIFO, killed as a whole group at its deadline.

A child of kind `turns` is also spoken to, on a second FIFO.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dgw.errors import ChildFault
from dgw.workbench.protocol import Bye, ChildJob, Hello, Message, decode, write_job

_TAIL_BYTES = 2000
_KILL_WAIT_S = 30.0
_PROFILER_WAIT_S = 30.0  # what a profiler may take to write its report once its program is dead


@dataclass(frozen=True)
class End:
    """How a child ended. `said_bye`: it finished its job, or gave its dead context up in good order."""

    how: Literal["exited", "timed-out"]
    status: int | None
    said_bye: bool
    context_lost: bool
    output: str

    def describe(self, deadline_s: float) -> str:
        """In words."""
        if self.how == "timed-out":
            return f"no sign of life for {deadline_s:g} s; killed"
        if self.status is not None and self.status < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-self.status).name}{self._last_line()}"
        return f"ended with status {self.status}{self._last_line()}"

    def _last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return f": {lines[-1][:200]}" if lines else ""


REQUESTS = "requests"
"""The name of the FIFO, in the folder of the job file, on which a child of kind `turns` is spoken to."""


def open_requests(folder: Path) -> int:
    """Make that FIFO and open it. When this process ends, the child reads the end of the file and leaves."""
    path = folder / REQUESTS
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR)


class Child:
    """A running child. `folder` is private to it: jobs, FIFO and output live there."""

    def __init__(
        self,
        argv: Sequence[str],
        job: ChildJob,
        folder: Path,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        keep_open: Sequence[int] = (),
    ) -> None:
        """Start `prefix + argv + [job file, FIFO]`; it inherits the descriptors `keep_open`.

        Raises ChildFault when it cannot be started.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._jobs = folder, 1
        self._fifo, self._log, self._clock = folder / "answers", folder / "output.log", clock
        write_job(folder / "job.json", job)
        self._requests = open_requests(folder) if job.kind == "turns" else None
        os.mkfifo(self._fifo, 0o600)
        self._read = os.open(
            self._fifo, os.O_RDWR | os.O_NONBLOCK
        )  # a writer of its own: no end of file before the exit
        command = [*prefix, *argv, str(folder / "job.json"), str(self._fifo)]
        try:
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if job.lingers or job.paced else subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(environment if environment is not None else os.environ),
                    start_new_session=True,
                    pass_fds=tuple(keep_open),
                )
        except OSError as error:
            self._close(self._read)
            raise ChildFault(f"cannot start {command[0]}: {error.strerror}", "dgw doctor") from error
        self._exit = os.pidfd_open(self._process.pid)
        self._inner: int | None = None
        self._bye: Bye | None = None
        self._timed_out = False
        self._waiting: list[Message] = []
        self._rest = b""

    def ask(self, request: bytes) -> None:
        """Send one line to a child of kind `turns`. What a dead child does not read is lost."""
        if self._requests is not None:
            with contextlib.suppress(OSError):
                os.write(self._requests, request)

    def answer(self, limit_s: float) -> Message | None:
        """The next message, or None when the child ended, or said nothing for `limit_s` (then `finish` says so)."""
        end = self._clock() + limit_s
        while True:
            if self._waiting:
                return self._waiting.pop(0)
            ready = select.select([self._read, self._exit], [], [], max(0.0, end - self._clock()))[0]
            *lines, self._rest = self._lines(self._rest)
            for line in lines:
                self._waiting.append(self._noted(decode(line)))
            if not lines and self._exit in ready:
                return None
            if not ready and self._clock() >= end:
                self._timed_out = True
                return None

    @property
    def waits(self) -> bool:
        """Whether it has finished its job and waits for another one."""
        return self._bye is not None and self._bye.lingers

    def give(self, job: ChildJob) -> None:
        """Another job for a child that waits. Raises ChildFault when it has ended meanwhile."""
        self._jobs += 1
        path = self._folder / f"job-{self._jobs}.json"
        write_job(path, job)
        self._bye = None
        try:
            self._type(f"{path}\n")
        except OSError as error:
            raise ChildFault(f"the child process has ended: {error.strerror}", "the same command again") from error

    def go_on(self) -> None:
        """Let a paced child begin its next group; one that has ended is heard of anyway."""
        with contextlib.suppress(OSError):
            self._type("\n")

    def _type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def messages(self, deadline_s: float, start_s: float) -> Iterator[Message]:
        """Every message until the child exits, or is silent for `deadline_s` (before the first one: `start_s`)."""
        last, limit, rest = self._clock(), start_s, b""
        while True:
            wait = last + limit - self._clock()
            ready = select.select([self._read, self._exit], [], [], max(0.0, wait))[0]
            lines = self._lines(rest)
            rest = lines.pop()
            for line in lines:
                last, limit = self._clock(), deadline_s
                yield self._noted(decode(line))
            if self._exit in ready:
                for line in self._lines(rest)[:-1]:
                    yield decode(line)
                return
            if not ready and self._clock() - last >= limit:
                self._timed_out = True
                return

    def _noted(self, message: Message) -> Message:
        if isinstance(message, Hello):
            self._inner = message.pid
        if isinstance(message, Bye):
            self._bye = message
        return message

    def _lines(self, rest: bytes) -> list[bytes]:
        """Complete lines that have arrived; the last item is what is not complete yet."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._read, 65536):
                rest += data
        return rest.split(b"\n")

    def finish(self) -> End:
        """Make sure that nothing of it is left, and say how it ended."""
        if self._timed_out:
            self._stop_program()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_WAIT_S)
        self._close(self._exit, self._read)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        return self.end()

    def end(self) -> End:
        """How it ended, or, while it waits for another job, how the last one did."""
        return End(
            how="timed-out" if self._timed_out else "exited",
            status=self._process.returncode,
            said_bye=self._bye is not None,
            context_lost=self._bye is not None and self._bye.context_lost,
            output=self.output(),
        )

    def _close(self, *descriptors: int) -> None:
        for descriptor in (*descriptors, self._requests):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _stop_program(self) -> None:
        """Under a profiler kill its program first and let the profiler write what it has."""
        if self._inner is None or self._inner == self._process.pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._inner, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PROFILER_WAIT_S)

    def output(self) -> str:
        """The end of what it printed."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
        return ""
