"""The runner against children that work, crash, hang, lie on standard output, and lose their GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgw.errors import ChildFault, Missing
from dgw.model import Case, Config, Device, Launch, Measurement, Plan, Problem, Record, Source, Variant, gemm
from dgw.toolchain.devices import device
from dgw.workbench import runner
from dgw.workbench.counters import Harvest
from dgw.workbench.runner import Job, Session

FAKE = Path(__file__).parent / "fake_child.py"
KERNEL = 'extern "C" __global__ void nothing() {}\n'
NAMES = (
    "good", "base", "wrong", "crashes", "hangs", "chatters", "exits", "loses-context", "out-of-memory",
    "dies-unannounced", "crashes-when-profiled", "waits-for-the-next",
)  # fmt: skip


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    launch = Launch(source=Source(path="nothing.cu"), entry="nothing", grid=(1, 1, 1), block=(32, 1, 1), arguments=())
    return Plan(steps=(launch,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runner")
    (made / "nothing.cu").write_text(KERNEL)
    (made / "broken.cu").write_text("this is not C++\n")
    return made


def variants_in(folder: Path) -> dict[str, Variant]:
    plain = {
        f"t/{name}": Variant(id=f"t/{name}", version=1, idea="", dtypes=("f16",), plan=plan, root=folder)
        for name in NAMES
    }

    def broken(problem: Problem, config: Config, device: Device) -> Plan:
        made = plan(problem, config, device).launches[0]
        return Plan(
            steps=(
                Launch(**{f: getattr(made, f) for f in made.__struct_fields__} | {"source": Source(path="broken.cu")}),
            )
        )

    def raising(problem: Problem, config: Config, device: Device) -> Plan:
        raise ZeroDivisionError("no tiles")

    made = Variant(id="t/broken", version=1, idea="", dtypes=("f16",), plan=broken, root=folder)
    return plain | {
        "t/broken": made,
        "t/raises": replace(made, id="t/raises", plan=raising),
        "t/refuses": replace(made, id="t/refuses", refuses=lambda p, c, d: "M must be even"),
        "t/hopper-only": replace(made, id="t/hopper-only", architectures=("sm_100a",)),
        "t/needs": replace(made, id="t/needs", plan=None, bind=lambda p, c, b: lambda: None, needs=("no_such_module",)),
    }


def case(name: str, n: int = 64) -> Case:
    return Case(problem=gemm(64, n, 64), variant=f"t/{name}")


class Bench:
    """A session with fake children, and everything that was handed on."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.journal = journal
        self.handed: list[Record] = []
        self.session = Session(
            variants=variants_in(folder),
            device=device("h200"),
            child_argv=[sys.executable, str(FAKE), "normal", str(journal)],
            cache_dir=folder / "cache",
            deadline_s=2.0,
        )

    def run(self, jobs: Sequence[Job], **changes: Any) -> dict[str, Record]:
        found = runner.run(jobs, replace(self.session, **changes), self.handed.append)
        return {record.case.variant.removeprefix("t/"): record for record in found}

    @property
    def children(self) -> list[str]:
        return self.journal.read_text().splitlines()


@pytest.fixture
def bench(folder: Path, tmp_path: Path) -> Bench:
    return Bench(folder, tmp_path / "journal")


def test_every_case_gives_a_record_whatever_the_others_do(bench: Bench) -> None:
    names = (*NAMES, "broken", "raises", "refuses", "hopper-only", "needs")
    found = bench.run([Job(case(name)) for name in names])
    assert {name: record.outcome for name, record in found.items()} == {
        "good": "ok", "base": "ok", "wrong": "wrong", "crashes": "crashed", "hangs": "timed-out", "chatters": "ok",
        "exits": "crashed", "loses-context": "crashed", "out-of-memory": "out-of-memory", "dies-unannounced": "crashed",
        "crashes-when-profiled": "ok", "waits-for-the-next": "ok", "broken": "compile-failed",
        "raises": "launch-failed", "refuses": "refused",
        "hopper-only": "refused", "needs": "refused",
    }  # fmt: skip
    assert sorted(r.case.key for r in bench.handed) == sorted(r.case.key for r in found.values())


def test_a_crash_names_the_phase_and_the_signal(bench: Bench) -> None:
    found = bench.run([Job(case("crashes")), Job(case("exits"))])
    assert "SIGSEGV" in found["crashes"].reason
    assert found["crashes"].reason.startswith("check:")
    assert "something went wrong" in found["exits"].reason


def test_a_hang_is_killed_with_everything_it_started(bench: Bench) -> None:
    found = bench.run([Job(case("hangs")), Job(case("good"))])
    assert found["hangs"].outcome == "timed-out"
    assert found["good"].outcome == "ok"
    alive = [
        p
        for p in Path("/proc").glob("[0-9]*")
        if _command(p).startswith(f"{sys.executable}\0-c\0import time; time.sleep(600)")
    ]
    assert not alive


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def test_each_finished_case_is_handed_on_before_a_later_one_starts(bench: Bench) -> None:
    jobs = [Job(case("good", n), frozenset({"check"})) for n in (8, 16)] + [Job(case("crashes", 24))]
    seen: list[int] = []
    runner.run(jobs, bench.session, lambda record: seen.append(len(bench.children)))
    assert seen == [2, 2, 2]  # a probe and one child: none was started afterwards


def test_after_a_fault_a_fresh_child_goes_on_with_the_rest_only(bench: Bench) -> None:
    bench.run([Job(case("good", 8)), Job(case("crashes", 16)), Job(case("good", 24))])
    assert bench.children == ["probe 0", "measure 3", "measure 1"]


def test_who_has_asked_what_the_gpu_is_need_not_ask_again(bench: Bench) -> None:
    environment, found = runner.probe(bench.session.child_argv)
    assert (environment.device, found.name) == ("h200", "h200")
    bench.run([Job(case("good"))], device=found, environment=environment)
    assert bench.children == ["probe 0", "measure 1"]


def test_a_wrong_result_is_recorded_and_not_timed_and_not_profiled(bench: Bench) -> None:
    lane = FakeLane()
    found = bench.run([Job(case("wrong"), frozenset({"check", "time", "counters"}))], counter_lane=lane)
    assert found["wrong"].outcome == "wrong"
    assert found["wrong"].number("time_cold") is None
    assert lane.commands == 0


def test_a_baseline_that_fails_leaves_the_ratio_absent_with_the_reason(bench: Bench) -> None:
    found = bench.run([Job(case("good"), against=(case("crashes"),))])
    assert list(found) == ["good"]
    ratio = found["good"].get("ratio_to_crashes")
    assert ratio is not None
    assert "crashed" in ratio.absent
    refused = bench.run([Job(case("good"), against=(case("refuses"),))])["good"].get("ratio_to_refuses")
    assert refused is not None
    assert "M must be even" in refused.absent


def test_a_baseline_stays_with_the_members_that_still_need_it(bench: Bench) -> None:
    jobs = [
        Job(case("base")),
        Job(case("crashes"), against=(case("base"),)),
        Job(case("good"), against=(case("base"),)),
    ]
    found = bench.run(jobs)
    assert found["good"].number("ratio_to_base") == 1.0
    assert [record.case.variant for record in bench.handed].count("t/base") == 1


def test_without_a_gpu_the_run_ends_with_missing_and_no_record(bench: Bench) -> None:
    argv = [*bench.session.child_argv]
    argv[2] = "no-gpu"
    with pytest.raises(Missing, match="CUDA_ERROR_NO_DEVICE"):
        bench.run([Job(case("good"))], child_argv=argv)
    assert not bench.handed


def test_a_child_that_cannot_start_or_answer_is_an_error_and_no_hang(bench: Bench) -> None:
    with pytest.raises(ChildFault, match="cannot start"):
        bench.run([Job(case("good"))], child_argv=["/no/such/program"])
    with pytest.raises(ChildFault, match="did not answer"):
        bench.run([Job(case("good"))], child_argv=[sys.executable, "-c", "print('hello')"])


def test_children_that_never_begin_a_case_do_not_loop_for_ever(bench: Bench) -> None:
    found = bench.run([Job(case("dies-unannounced", n)) for n in (8, 16, 24, 32)])
    assert found["dies-unannounced"].outcome == "crashed"
    assert len(bench.handed) == 4
    assert len(bench.children) < 10


def test_an_interrupt_kills_the_child_and_keeps_what_is_finished(bench: Bench) -> None:
    jobs = [Job(case("good", n), frozenset({"check"})) for n in (8, 16)]

    def interrupt(record: Record) -> None:
        bench.handed.append(record)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(jobs, bench.session, interrupt)
    assert len(bench.handed) == 1
    assert not [p for p in Path("/proc").glob("[0-9]*") if str(bench.journal) in _command(p)]


class FakeLane:
    """A profiler whose report is what the child's journal says; `lost` cases are missing from the first report.

    `forbidden` reports come back with nothing before it asks for less.
    """

    version = "2025.3.1.0"

    def __init__(self, lost: frozenset[str] = frozenset(), fatal: str = "", each: int = 1, forbidden: int = 0) -> None:
        self.lost, self.fatal, self.each, self.commands = set(lost), fatal, each, 0
        self.forbidden = forbidden
        self.expected: Callable[[], list[str]] = list

    def command(self, report: Path) -> list[str]:
        self.commands += 1
        return ["env"]

    def environment(self, env: Any, scratch: Path) -> dict[str, str]:
        return dict(env)

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        if self.fatal:
            return Harvest({}, self.fatal, fatal=True)
        if self.commands <= self.forbidden:
            return Harvest({}, "no permission", retry=True)
        kernels = {key: ["kernel"] * self.each for key in self.expected() if key not in self.lost}
        self.lost.clear()
        return Harvest(kernels)

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        return (Measurement(metric="l2_hit_rate", value=0.5 if kernels else None, collector="ncu", absent=reason),)


COUNTED = frozenset({"check", "counters"})


def test_counters_complete_the_record_that_was_handed_on_before(bench: Bench) -> None:
    lane = FakeLane()
    lane.expected = lambda: [case("good").key]
    found = bench.run([Job(case("good"), COUNTED)], counter_lane=lane)
    assert [r.number("l2_hit_rate") for r in bench.handed] == [None, 0.5]
    assert found["good"].number("l2_hit_rate") == 0.5


def test_without_permission_the_same_cases_are_profiled_again_for_less(bench: Bench) -> None:
    lane = FakeLane(forbidden=1)
    lane.expected = lambda: [case("good").key]
    found = bench.run([Job(case("good"), COUNTED)], counter_lane=lane)
    assert lane.commands == 2
    assert found["good"].number("l2_hit_rate") == 0.5
    assert found["good"].environment.ncu == "2025.3.1.0"


def test_a_case_that_dies_under_the_profiler_stays_ok_and_the_rest_is_profiled(bench: Bench) -> None:
    lane = FakeLane()
    lane.expected = lambda: [case("good", 8).key, *([case("good", 24).key] if lane.commands > 1 else [])]
    jobs = [Job(case(name, n), COUNTED) for name, n in (("good", 8), ("crashes-when-profiled", 16), ("good", 24))]
    records = runner.run(jobs, replace(bench.session, counter_lane=lane), bench.handed.append)
    assert [r.outcome for r in records] == ["ok"] * 3
    assert [r.number("l2_hit_rate") for r in records] == [0.5, None, 0.5]
    lost = records[1].get("l2_hit_rate")
    assert lost is not None
    assert "under the profiler" in lost.absent
    assert lane.commands == 2


def test_a_report_that_lost_a_case_is_made_again_once(bench: Bench) -> None:
    lane = FakeLane(lost=frozenset({case("good").key}))
    lane.expected = lambda: [case("good").key]
    assert bench.run([Job(case("good"), COUNTED)], counter_lane=lane)["good"].number("l2_hit_rate") == 0.5
    assert lane.commands == 2


def test_missing_permission_is_not_tried_again_for_every_chunk(bench: Bench) -> None:
    lane = FakeLane(fatal="no permission for counters")
    jobs = [Job(case("good", 8 * n), COUNTED) for n in range(1, 31)]
    records = runner.run(jobs, replace(bench.session, counter_lane=lane), bench.handed.append)
    assert lane.commands == 2  # the second was started ahead, and stopped when the first was refused
    assert {r.get("l2_hit_rate").absent for r in records} == {"no permission for counters"}  # type: ignore[union-attr]


def test_a_chunk_holds_at_most_25_cases(bench: Bench) -> None:
    jobs = [Job(case("good", 8 * n), COUNTED) for n in range(1, 31)]
    lane = FakeLane()
    lane.expected = lambda: [job.case.key for job in jobs]
    runner.run(jobs, replace(bench.session, counter_lane=lane), bench.handed.append)
    assert sorted(line for line in bench.children if line.startswith("profile")) == ["profile 25", "profile 5"]


def test_the_child_of_the_next_chunk_is_there_before_the_first_has_ended(bench: Bench) -> None:
    jobs = [Job(case("waits-for-the-next" if n == 3 else "good", 8 * n), COUNTED) for n in range(1, 31)]
    lane = FakeLane()
    lane.expected = lambda: [job.case.key for job in jobs]
    records = runner.run(jobs, replace(bench.session, counter_lane=lane), bench.handed.append)
    assert all(record.number("l2_hit_rate") == 0.5 for record in records)
    assert bench.children.count("its turn") == 2


def test_another_number_of_kernels_than_declared_is_flagged(bench: Bench) -> None:
    lane = FakeLane(each=2)
    lane.expected = lambda: [case("good").key]
    found = bench.run([Job(case("good"), COUNTED)], counter_lane=lane)["good"]
    assert "kernels: the profiler saw 2, the plan declares 1" in found.flags


def test_no_temporary_folder_is_left_behind(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bench.run([Job(case("good"))])
    assert not [name for name in os.listdir(tmp_path) if name.startswith("dgw-")]
