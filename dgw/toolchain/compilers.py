"""Compiles into the cache in several processes: `python -m dgw.toolchain.compilers FOLDER` is one of them.

Threads of one process wait for each other inside NVRTC, so that a second one gains little and a third nothing. A worker
reads one request a line on standard input, leaves what it compiled in the cache FOLDER and answers with a line. What
went wrong in it does not matter: whoever asked builds once more, from the cache or to get the error.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from dgw.errors import DgwError
from dgw.model import Source

WORTH_PROCESSES = 8  # programs to compile; fewer are done before the processes have started
MOST_PROCESSES = 32
_DONE, _FAILED = b"done\n", b"failed\n"


Start = Callable[[Path], subprocess.Popen[bytes]]


class Task(msgspec.Struct, frozen=True):
    """One line to a worker: the arguments of `build`."""

    source: Source
    root: str
    includes: tuple[str, ...]
    arch: str


class Compilers:
    """Up to `count` worker processes over the cache in `folder`, each started when it is first needed."""

    def __init__(
        self, folder: Path, count: int, start: Callable[[Path], subprocess.Popen[bytes]] | None = None
    ) -> None:
        self._folder, self._start = folder, start or _start
        self._idle: queue.LifoQueue[subprocess.Popen[bytes] | None] = queue.LifoQueue()
        self._all: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self._idle.put(None)

    def compile(self, task: Task) -> bool:
        """Have `task`, which is not in the cache, compiled; whether a worker did it, so that it is there now."""
        worker, answer = self._idle.get(), b""
        try:
            if worker is None or worker.poll() is not None:
                worker = self._start(self._folder)
                self._all.append(worker)
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(msgspec.json.encode(task) + b"\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        except OSError:  # it cannot be started, or died: the one who asked compiles by himself
            worker = None
        finally:
            self._idle.put(worker)
        return answer == _DONE

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._all:
            worker.kill()
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def _start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dgw.toolchain.compilers", str(folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def serve(folder: Path, asked: IO[bytes], answers: IO[bytes]) -> None:
    """Compile what is asked for, until there is nothing more to read. Who asks has looked into the cache already."""
    from dgw.toolchain.build import build_anew
    from dgw.toolchain.cache import CompileCache

    cache = CompileCache(folder)
    for line in asked:
        task = msgspec.json.decode(line, type=Task)
        answer = _FAILED
        with contextlib.suppress(DgwError):
            build_anew(task.source, Path(task.root), tuple(map(Path, task.includes)), task.arch, cache)
            answer = _DONE
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
