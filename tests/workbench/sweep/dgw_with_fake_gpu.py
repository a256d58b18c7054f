"""dgw with fake GPUs, as a process that can be killed: DELAY JOURNAL BROKEN GPUS, then the arguments of dgw."""

from __future__ import annotations

import sys
from pathlib import Path

from dgw.cli import run
from dgw.commands import session, sweep_local
from dgw.workbench import slots

FAKE = Path(__file__).with_name("fake_gpu.py")


def main() -> int:
    delay, journal, broken, gpus, *arguments = sys.argv[1:]
    argv = [sys.executable, str(FAKE), delay, journal, broken]
    session.gpu_is_here = lambda: True
    session.child_argv = sweep_local.child_argv = lambda ask: argv
    slots.visible = lambda *_, **__: [slots.Slot(f"GPU-{n}", "fake") for n in range(int(gpus))]
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
