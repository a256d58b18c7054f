"""What the tests of lanes that run children behind a tool share: stubs of the tools, and a place that runs children."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from dgw.kernels.loader import load
from dgw.model import Case, Launch, Measurement, Plan, Record, Source, Variant, gemm
from dgw.workbench.children import End
from dgw.workbench.passes import Target, Workplace
from dgw.workbench.protocol import Begin, ChildJob, Done, Member, Message, write_job

KEY = "0123456789abcdef"
STUBS = Path(__file__).parents[2] / "data" / "stubs"
NSYS, SANITIZER = STUBS / "nsys", STUBS / "compute-sanitizer"


def nsys_file() -> ModuleType:
    """The module that writes timelines."""
    name = "dgw_tests_nsys_file"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, STUBS / "nsys_file.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def target(size: int, synchronises: Any = "barrier", outcome: Any = "ok", foreign: bool = False) -> Target:
    """A case of one launch, or of foreign code."""
    launch = Launch(source=Source(path="x.cu"), entry="gemm_planted", grid=(1, 1, 1), block=(32, 1, 1), arguments=())
    case = Case(problem=gemm(size, 64, 64), variant="cuda/planted")
    variant = Variant(
        id="cuda/planted", version=1, idea="", dtypes=("f16",), synchronises=synchronises,
        plan=lambda *_: Plan(steps=(launch,)),
    )  # fmt: skip
    member = Member(case=case, plan=None if foreign else Plan(steps=(launch,)), cubins=() if foreign else ("x.cubin",))
    return Target(member, variant, Record(case=case, outcome=outcome))


Act = Callable[[ChildJob, Callable[[Message], None]], None]


@dataclass
class Children:
    """Runs a program that does nothing behind the prefix, and says of every case what a child would.

    `fails` maps keys to the outcome of their cases, `says` gives what a good case reports, `dies` is the case at which
    the child is gone. A `mute` one never got so far as to speak.
    """

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    fails: Mapping[str, str] = field(default_factory=dict)
    says: tuple[Measurement, ...] = ()
    dies: str = ""
    mute: bool = False
    jobs: list[ChildJob] = field(default_factory=list)
    prefixes: list[list[str]] = field(default_factory=list)
    act: Act | None = None

    def listen(
        self,
        job: ChildJob,
        hear: Callable[[Message], None],
        prefix: Sequence[str],
        environment: Mapping[str, str] | None,
        patience: float,
    ) -> End:
        self.jobs.append(job)
        self.prefixes.append(list(prefix))
        path = self.folder / f"{len(self.jobs)}" / "job.json"
        path.parent.mkdir(parents=True)
        write_job(path, job)
        died = not self.mute and self._speak(job, hear)
        if self.act is not None:
            self.act(job, hear)
        program = [sys.executable, "-c", f"raise SystemExit({1 if died else 0})", str(path)]
        done = subprocess.run(
            [*prefix, *program], capture_output=True, text=True, check=False,
            env={**(environment or os.environ), **self.env},
        )  # fmt: skip
        return End("exited", done.returncode, not died, False, done.stdout + done.stderr)

    def _speak(self, job: ChildJob, hear: Callable[[Message], None]) -> bool:
        for member in (member for group in job.groups for member in group.members):
            key = member.case.key
            hear(Begin(key=key, phase="profile"))
            if key == self.dies:
                return True
            outcome: Any = self.fails.get(key, "ok")
            hear(Done(key=key, outcome=outcome, reason="" if outcome == "ok" else "on purpose",
                      measurements=self.says if outcome == "ok" else ()))  # fmt: skip
        return False

    def place(self) -> Workplace:
        folder = self.folder / "place"
        folder.mkdir(exist_ok=True)
        return Workplace(self.listen, folder, {"fill": "fill.cubin"}, 60.0)


def every_variant() -> list[Variant]:
    """What dgw ships."""
    return list(load().values())


def values(found: Iterable[Measurement], scope: str = "case") -> dict[str, Any]:
    return {one.metric: one.value for one in found if one.scope == scope}


def torch_trace(path: Path, name: str = KEY, kernels: int = 2, correlated: bool = True) -> Path:
    """A trace as torch.profiler exports it: one range, its launches, its kernels."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"dgw@{name}", "pid": 1, "tid": 1, "ts": 100.0, "dur": 500.0},
        {"ph": "X", "cat": "gpu_user_annotation", "name": f"dgw@{name}", "pid": 0, "tid": 7, "ts": 130.0, "dur": 60.0},
        {"ph": "i", "name": "Iteration Start", "ts": 1},
    ]
    for number in range(kernels):
        begin = 110.0 + 5 * number
        call = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": 1, "tid": 1, "ts": begin,
                "dur": 4.0, "args": {"correlation": number + 1 if correlated else 0}}  # fmt: skip
        begin = 150.0 + 20 * number
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": begin, "dur": 15.0,
                  "args": {"correlation": number + 1, "grid": [4, 2, 1], "block": [128, 1, 1], "stream": 7,
                           "registers per thread": 64, "shared memory": 2048}}  # fmt: skip
        events += [call, kernel]
    device = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path
