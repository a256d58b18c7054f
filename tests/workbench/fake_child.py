"""A child that speaks the protocol without a GPU and does to each case what its variant's name says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dgw.model import Case, Check, Environment, Measurement
from dgw.toolchain.devices import device
from dgw.workbench import turn
from dgw.workbench.protocol import Begin, Bye, Done, Hello, Speaker, Unavailable, read_job


def check(passed: bool) -> Check:
    return Check(passed=passed, compared=1, detail="" if passed else "1 of 1 elements are wrong")


def work(speaker: Speaker, case: Case, kind: str, lanes: tuple[str, ...], others: set[str]) -> None:
    what, key = case.variant.partition("/")[2], case.key
    if what == "dies-unannounced":
        os._exit(3)
    speaker.say(Begin(key=key, phase="profile" if kind == "profile" else "check"))
    match what:
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # must die with the group
            time.sleep(600)
        case "chatters":
            print('{"type": "done", "key": "x", "outcome": "ok"}' * 1000)
            sys.stdout.flush()
            os.write(speaker._file, b"not json\n\xff\xfe\n")
        case "exits":
            print("Traceback: something went wrong", file=sys.stderr)
            sys.exit(1)
        case "waits-for-the-next" if kind == "profile":  # until another child has been started beside this one
            while Path(sys.argv[2]).read_text().count("profile") < 2:
                time.sleep(0.01)
        case "crashes-when-profiled" if kind == "profile":
            os._exit(11)
        case "loses-context":
            speaker.say(Done(key=key, outcome="crashed", reason="CUDA_ERROR_ILLEGAL_ADDRESS"))
            speaker.say(Bye(context_lost=True))
            sys.exit(13)
        case "out-of-memory":
            speaker.say(Done(key=key, outcome="out-of-memory", reason="CUDA_ERROR_OUT_OF_MEMORY"))
            return
        case "wrong":
            speaker.say(Done(key=key, outcome="wrong", reason="1 of 1 elements are wrong", check=check(False)))
            return
    found = []
    if "time" in lanes:
        found.append(Measurement(metric="time_cold", value=1e-3, unit="s", collector="timing", protocol="cold-graph/1"))
        if others:
            found.append(Measurement(metric="ratio_to_base", value=1.0, unit="ratio", collector="timing"))
    speaker.say(Done(key=key, outcome="ok", check=check(True), measurements=tuple(found)))


def main() -> None:
    mode, journal, job_file, fifo = sys.argv[1:]
    job = read_job(Path(job_file))
    speaker = Speaker(Path(fifo))
    with open(journal, "a") as lines:
        lines.write(f"{job.kind} {sum(len(group.members) for group in job.groups)}\n")
    if job.turn:
        turn.wait(job.turn)
        with open(journal, "a") as lines:
            lines.write("its turn\n")
    if mode == "no-gpu":
        speaker.say(Unavailable(reason="CUDA_ERROR_NO_DEVICE"))
        return
    speaker.say(Hello(pid=os.getpid(), environment=Environment(device="h200", engine="gpu"), device=device("h200")))
    while True:
        for group in job.groups:
            keys = {member.case.key for member in group.members}
            for member in group.members:
                work(speaker, member.case, job.kind, group.lanes, keys & set(member.against))
        speaker.say(Bye(lingers=job.lingers))
        if not job.lingers or not (path := sys.stdin.readline().strip()):
            return
        job = read_job(Path(path))
        with open(journal, "a") as lines:
            lines.write(f"again {job.kind} {sum(len(group.members) for group in job.groups)}\n")


if __name__ == "__main__":
    main()
