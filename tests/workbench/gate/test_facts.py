from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dgw.model import Case, Config, Fill, Launch, Measurement, Operand, Plan, Pointer, Source, gemm
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.gate import deadline as ending
from dgw.workbench.gate import facts as collecting
from dgw.workbench.gate.deadline import TooSlow, deadline
from dgw.workbench.gate.facts import count, identify, label_of, record_of, toolchain_of
from dgw.workbench.gate.figures import FIGURES, of_worst_launch
from dgw.workbench.prepare import identity
from tests.workbench.gate.exact_samples import facts

LAUNCH = Launch(
    source=Source(path="a.cu"), entry="a", grid=(2, 1, 1), block=(32, 1, 1), arguments=(Pointer(operand="a"),)
)


def plan(**changes: Any) -> Plan:
    return Plan(steps=(Launch(**({f: getattr(LAUNCH, f) for f in LAUNCH.__struct_fields__} | changes)),))


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": (1, 2, 1)}, {"block": (64, 1, 1)}, {"cluster": (2, 1, 1)}, {"shared_bytes": 16}, {"entry": "b"},
        {"arguments": (Pointer(operand="b"),)},
    ],
)  # fmt: skip
def test_everything_about_a_launch_is_in_its_hash(changes: dict[str, Any]) -> None:
    assert identity(plan(**changes)) != identity(plan())


def test_what_is_compiled_is_not_part_of_the_launch_but_fills_and_workspaces_are() -> None:
    assert identity(plan(source=Source(path="b.cu", defines=(("X", 1),)))) == identity(plan())
    filled = Plan(steps=(Fill(workspace="w"), LAUNCH), workspaces={"w": 4})
    assert len({identity(one) for one in (plan(), filled, Plan(steps=(LAUNCH,), workspaces={"w": 4}))}) == 3


@pytest.mark.parametrize(
    ("compiler", "name"),
    [
        ("nvrtc 13.5.37, headers 13.5.37", "nvrtc-13.5.37"),
        ("nvrtc 13.5.37, headers 13.4.1", "nvrtc-13.5.37-headers-13.4.1"),
        ("nvrtc 13.5, headers /usr/local/cuda/include", "nvrtc-13.5-headers-_usr_local_cuda_include"),
    ],
)
def test_a_toolchain_is_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, compiler: str, name: str) -> None:
    monkeypatch.setattr(collecting, "compiler_identity", lambda: compiler)
    assert toolchain_of(plan()) == (name, compiler)


@pytest.mark.parametrize(
    ("fields", "asked", "label"),
    [
        ({}, {}, "cuda/x 64x64x64 f16 nn"),
        ({"out": "f32"}, {"BM": 64}, "cuda/x 64x64x64 f16 -> f32 nn BM=64"),
        ({"layout": "nt", "bias": Operand(dtype="f16")}, {}, "cuda/x 64x64x64 f16 nt bias"),
    ],
)
def test_the_label_says_what_tells_cases_apart(fields: dict[str, Any], asked: Config, label: str) -> None:
    assert label_of("cuda/x", gemm(64, 64, 64, **fields), asked) == label


def forever() -> None:
    while True:
        time.monotonic()


def test_a_deadline_ends_what_takes_too_long_and_nothing_else() -> None:
    with pytest.raises(TooSlow, match=r"no end after 0\.05 s"), deadline(0.05):
        forever()
    with deadline(60.0):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_deadline_that_a_finaliser_swallows_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __del__(self) -> None:
            forever()

    def swallows() -> None:
        Slow()
        forever()

    monkeypatch.setattr(ending, "AGAIN_S", 0.05)
    with pytest.raises(TooSlow), deadline(0.05):
        swallows()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> CompileCache:
    return CompileCache(tmp_path_factory.mktemp("cache"))


def naive() -> Any:
    from dgw.kernels.loader import load

    return load()["cuda/naive"]


def test_a_case_has_every_figure_or_a_reason_why_not(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, machine = naive(), device("h200")
    case = Case(problem=gemm(33, 17, 20), variant=variant.id, version=variant.version, config=variant.defaults())
    known = identify(case, {}, variant, machine, cache)
    assert known.outcome == "ok"
    assert known.source == variant.root / "s01_naive.cu"
    whole = count(known, machine, cache)
    assert whole.outcome == "ok"
    assert set(whole.facts.figures) == set(FIGURES)
    assert (whole.facts.code, whole.facts.launch) == (known.facts.code, known.facts.launch)
    assert whole.facts.figures["inst_per_cta"] == whole.facts.figures["inst_executed"] / whole.facts.figures["blocks"]

    def unable(*arguments: Any, **more: Any) -> None:
        raise EmulatorError("no such instruction")

    monkeypatch.setattr(collecting, "emulate", unable)
    partly = count(known, machine, cache)
    assert partly.outcome == "ok"
    assert set(partly.facts.figures) | set(partly.facts.absent) == set(FIGURES)
    assert "no such instruction" in partly.facts.absent["inst_executed"]
    monkeypatch.setattr(collecting, "emulate", lambda *arguments, **more: 1 / 0)
    assert count(known, machine, cache).outcome == "crashed"


def test_of_several_launches_the_worst_one_counts_and_not_the_one_with_the_largest_grid() -> None:
    def static(metric: str, value: float | None, scope: str) -> Measurement:
        return Measurement(metric=metric, value=value, scope=scope, collector="static")

    found = [
        *(static("registers_per_thread", v, s) for v, s in ((24, "case"), (24, "kernel 0"), (168, "kernel 1"))),
        *(static("theoretical_occupancy", v, s) for v, s in ((1.0, "case"), (1.0, "kernel 0"), (0.19, "kernel 1"))),
        *(static("spill_store_bytes", v, s) for v, s in ((0, "case"), (0, "kernel 0"), (None, "kernel 1"))),
        *(static("blocks", v, s) for v, s in ((24, "case"), (24, "kernel 0"), (1, "kernel 1"))),
        Measurement(metric="registers_per_thread", value=255, scope="kernel 0", collector="ncu"),
    ]
    known = {metric: of_worst_launch(found, metric) for metric in dict.fromkeys(m.metric for m in found)}
    assert known == {
        "registers_per_thread": 168, "theoretical_occupancy": 0.19, "spill_store_bytes": None, "blocks": 24
    }  # fmt: skip


def test_facts_survive_json(tmp_path: Path) -> None:
    import msgspec

    assert msgspec.json.decode(msgspec.json.encode(facts()), type=type(facts())) == facts()


def test_facts_are_a_record_for_the_recipes_with_every_figure_and_its_collector() -> None:
    known = facts(figures={"registers_per_thread": 32}, absent={"inst_executed": "no such PTX"})
    record = record_of(known)
    assert record.number("registers_per_thread", collector="static") == 32
    counted = record.get("inst_executed", collector="emulator")
    assert counted is not None
    assert (counted.value, counted.absent, counted.protocol) == (None, "no such PTX", known.protocol)
    assert record.environment.device == known.device
