"""A child with a clock of its own instead of a GPU: it checks nothing, and samples as the policy says.

Arguments: seconds to sleep before each case, a file in which every case that is begun is noted, and what to break:
`variant:KEY=VALUE=outcome` makes the cases with that tunable end so, `dies` ends the child at every third case. The
SM clock that its sensors read is FAKE_SM_CLOCK (Hz), or unknown.
"""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from pathlib import Path

from dgw.model import Case, Check, Environment
from dgw.toolchain.devices import device
from dgw.workbench.collectors import timing
from dgw.workbench.protocol import (
    Begin,
    Bye,
    ChildJob,
    Done,
    Group,
    Hello,
    Pause,
    Policy,
    Speaker,
    Unavailable,
    read_job,
)


def seconds_of(case: Case) -> float:
    """What a launch takes: told by the config alone, the same in every process."""
    text = ",".join(f"{name}={value}" for name, value in sorted(case.config.items()))
    return 1e-3 * (1 + zlib.crc32(text.encode()) % 1000 / 1000)


class Clock:
    """timing.Bench on a clock that only replays move; 0.3 % of noise."""

    def __init__(self, cases: dict[str, Case], seed: int) -> None:
        self.time, self.cases, self.noise = 0.0, cases, random.Random(seed)

    def replay(self, key: str, cache: timing.Cache, sensors: bool) -> timing.Replay:
        taken = 2 * seconds_of(self.cases[key]) * self.noise.uniform(0.997, 1.003)
        self.time += taken
        clock = os.environ.get("FAKE_SM_CLOCK")
        read = timing.Telemetry(float(clock), throttle=("SwPowerCap",)) if sensors and clock else None
        return timing.Replay(taken, read)

    def now(self) -> float:
        return self.time

    def announce(self, key: str, phase: str) -> None:
        """Nobody listens."""


class Fake:
    """One child at work."""

    def __init__(self, speaker: Speaker, delay: float, journal: Path, broken: str) -> None:
        self.speaker, self.delay, self.journal, self.broken = speaker, delay, journal, broken
        self.begun = 0

    def outcome(self, case: Case) -> str:
        name, _, rest = self.broken.partition("=")
        value, _, outcome = rest.partition("=")
        return outcome if rest and str(case.config.get(name)) == value else "ok"

    def do(self, group: Group, policy: Policy, kind: str) -> None:
        good = []
        for member in group.members:
            case = member.case
            self.begun += 1
            with self.journal.open("a") as lines:
                lines.write(f"{os.environ.get('CUDA_VISIBLE_DEVICES', '-')} {policy.name} {case.key}\n")
            self.speaker.say(Begin(key=case.key, phase="check"))
            if self.broken == "dies" and self.begun % 3 == 0:
                os._exit(9)
            time.sleep(self.delay)
            outcome = self.outcome(case)
            check = Check(passed=outcome == "ok", compared=1)
            if outcome == "ok" and kind == "measure" and "time" in group.lanes:
                good.append((case, member.reported))
            else:
                self.speaker.say(Done(key=case.key, outcome=outcome, reason="on purpose", check=check))  # type: ignore[arg-type]
        cases = {case.key: case for case, _ in good}
        entrants = [timing.Entrant(case.key, 0, 2, reported) for case, reported in good]
        series = timing.sample(Clock(cases, len(cases)), entrants, policy)
        for key, case in cases.items():
            found = timing.time_measurements(series[key], case.problem.flops, case.problem.compulsory_bytes, policy, "")
            self.speaker.say(Done(key=key, outcome="ok", check=Check(passed=True, compared=1), measurements=found))


def main() -> None:
    delay, journal, broken, job_file, fifo = sys.argv[1:]
    job: ChildJob = read_job(Path(job_file))
    speaker = Speaker(Path(fifo))
    if broken == "no-gpu":
        speaker.say(Unavailable(reason="CUDA_ERROR_NO_DEVICE"))
        return
    environment = Environment(device="h200", arch="sm_90a", driver="580.159", engine="gpu")
    speaker.say(Hello(pid=os.getpid(), environment=environment, device=device("h200")))
    fake = Fake(speaker, float(delay), Path(journal), broken)
    while True:
        for number, group in enumerate(job.groups):
            if number and job.paced:
                speaker.say(Pause())
                if not sys.stdin.readline():
                    return
            fake.do(group, job.policy, job.kind)
        speaker.say(Bye(lingers=job.lingers))
        if not job.lingers or not (path := sys.stdin.readline().strip()):
            return
        job = read_job(Path(path))


if __name__ == "__main__":
    main()
