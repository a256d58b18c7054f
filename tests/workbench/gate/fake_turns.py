"""A child of kind `turns` without a GPU, as a real process: what it does is the second word of its arguments."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dgw.toolchain.devices import device
from dgw.workbench.protocol import Begin, Bye, Done, Hello, Ready, Speaker, Turned, Unavailable
from dgw.workbench.turns import Prepare, Release, Turn, requests
from tests.workbench.gate.fake_lab import ENVIRONMENT


def main() -> None:
    side, what, job_file, fifo = sys.argv[1:]
    speaker = Speaker(Path(fifo))
    if what == "no-gpu":
        speaker.say(Unavailable(reason="CUDA_ERROR_NO_DEVICE"))
        return
    if what == "does-not-start":
        sys.exit("it does not")
    speaker.say(Hello(pid=os.getpid(), environment=ENVIRONMENT, device=device("h200")))
    journal = Path(job_file).parent.parent / "journal"
    for request in requests(Path(job_file).parent):
        with journal.open("a") as lines:
            lines.write(f"{side} {type(request).__name__} {getattr(request, 'launches', '')} {os.getpid()}\n")
        bad = "bad" in request.name
        if isinstance(request, Prepare):
            speaker.say(Begin(key=request.name, phase="prepare"))
            speaker.say(Ready(name=request.name, launches=request.launches or 50, sets=2))
        elif isinstance(request, Turn):
            if bad and what == "hangs":
                time.sleep(600)
            if bad and what == "dies":
                os._exit(7)
            speaker.say(Turned(name=request.name, seconds=1e-4 if side == "base" else 1.1e-4))
        elif isinstance(request, Release):
            speaker.say(Done(key=request.name, outcome="ok"))
    speaker.say(Bye())


if __name__ == "__main__":
    main()
