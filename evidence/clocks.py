"""Locked clocks: held while something is measured, said by every protocol, and given back, after kill -9 too."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from topic import ROOT, Done, Topic, of, thin

from dgw.model import Record, Run

LOCK = 1200
"""MHz: far enough below every limit that only a lock explains it, and far enough above that a GPU has it."""
PROFILE = (
    "profile", "--variant", "swizzled", "--shape", "4096x4096x4096", "--against", "none", "--counters", "none",
)  # fmt: skip
SWEEP = ("sweep", "--variant", "cuda/tensor-core", "--shape", "2048x2048x2048", "--sample", "12")
LOCKED = ("--lock-clocks", str(LOCK))
KEPT = ("time_cold", "time_hot", "energy", "sm_clock", "power", "throttle")
GIVEN_BACK = 0.97
"""The least share of the clock before that a GPU comes back to: two turns differ by how warm it is."""
PATIENCE_S = 60.0


def sm_clock() -> float | None:
    """The SM clock of the first GPU at this moment, in Hz."""
    from dgw.workbench.device.nvml import Sensors
    from dgw.workbench.slots import visible

    return next((Sensors(slot.uuid).telemetry().sm_clock for slot in visible()[:1]), None)


def off(clock: float | None) -> float | None:
    """How far, as a share, a clock is from the locked one."""
    return None if clock is None else abs(clock / (LOCK * 1e6) - 1)


def farthest(record: Record) -> float | None:
    """How far the reading farthest from the locked clock is from it."""
    found = record.get("sm_clock")
    ends = [] if found is None else [share for end in (found.low, found.high) if (share := off(end)) is not None]
    return max(ends, default=None)


def quotient(after: float | None, before: float | None) -> float | None:
    """Their ratio where both are known."""
    return after / before if after and before else None


def held(topic: Topic, free: Run) -> Run:
    """A profile at the locked clock, what it says of itself, and that it is not compared with the one before."""
    done = topic.dgw(*PROFILE, *LOCKED, "--json")
    topic.show(f"exit code of a profile with --lock-clocks {LOCK}", done.code, "", "==", 0)
    run, record = done.run, of(done.run, "swizzled")
    cold = record.get("time_cold")
    topic.show("protocol of its cold time", cold.protocol if cold else None, "", "==", f"cold-graph/1 at {LOCK} MHz")
    topic.show("SM clock meanwhile: distance of the farthest reading from the locked one", farthest(record), "ratio",
               "<=", 0.01)  # fmt: skip
    topic.show("flags that say that the clock left the locked one", left(run), "", "==", 0)
    ratio = quotient(record.number("time_cold"), of(free, "swizzled").number("time_cold"))
    topic.show("its cold time over that at the GPU's own clock", ratio, "ratio", ">", 1.0)
    refused = topic.dgw("report", "--compare", free.id, run.id)
    topic.show("exit code of a comparison of both runs", refused.code, "", "==", 4)
    topic.show("its reason is the protocol", int("different protocols" in refused.err), "", "==", 1)
    return run


def left(run: Run) -> int:
    """Records of a run whose clock left the locked one."""
    return sum(any(flag.startswith("left the locked clock") for flag in record.flags) for record in run.records)


def swept(topic: Topic) -> None:
    """A sweep at the locked clock beside one at the GPU's own, which leave each other's times alone."""
    free, locked = topic.dgw(*SWEEP, "--json"), topic.dgw(*SWEEP, *LOCKED, "--resume", "--json")
    ends = {m.protocol.endswith(f" at {LOCK} MHz") for r in locked.run.records for m in r.measurements
            if m.collector == "timing" and m.value is not None and m.protocol != "nvml/1"}  # fmt: skip
    topic.show("configs of a sweep that were timed at the locked clock", timed(locked), "", "==", timed(free))
    topic.show("its figures of which none lacks that clock", int(ends == {True}), "", "==", 1)
    topic.show("cases that it took over from the sweep before", int("taken over" in locked.err), "", "==", 0)
    again = topic.dgw(*SWEEP, *LOCKED, "--json")
    topic.show("the same command again takes its own cases over", int("taken over" in again.err), "", "==", 1)


def timed(done: Done) -> int:
    """Records with a cold time."""
    return sum(record.number("time_cold") is not None for record in done.run.records)


def killed(topic: Topic) -> None:
    """A profile that is killed with kill -9 while it holds the clock."""
    places = {"DGW_STORE": str(topic.folder / "killed.db"), "DGW_CACHE": str(topic.folder / "cache")}
    before = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, **places, "PYTHONPATH": os.pathsep.join(before)}
    process = subprocess.Popen(
        [sys.executable, "-m", "dgw", *SWEEP, *LOCKED], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + PATIENCE_S
    while ((seen := off(sm_clock())) is None or seen > 0.01) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    topic.show("distance of the SM clock from the locked one when a sweep was killed by kill -9", seen, "ratio", "<=",
               0.01)  # fmt: skip


def main() -> None:
    """Measure, compute every verdict, write the file."""
    topic = Topic("clocks")
    free = topic.dgw(*PROFILE, "--json").run
    own = of(free, "swizzled").number("sm_clock")
    run = held(topic, free)
    swept(topic)
    for after in ("those commands", "kill -9"):
        if after == "kill -9":
            killed(topic)
        found = topic.dgw(*PROFILE, "--no-store", "--json").run
        back = quotient(of(found, "swizzled").number("sm_clock"), own)
        topic.show(f"SM clock of a profile after {after}, over that of the first", back, "ratio", ">=", GIVEN_BACK)
    topic.write(run, free=thin(free, KEPT))


if __name__ == "__main__":
    main()
