"""A sweep on a dask cluster whose workers run fake GPUs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec
import pytest
from distributed import LocalCluster

from dgw.commands import sweep_cluster
from dgw.model import Case
from dgw.workbench import prepare, slots
from dgw.workbench.store import Store
from dgw.workbench.sweep import parcel, race
from tests.commands.conftest import Dgw
from tests.commands.test_sweep import FOLDER, Gpus, gpus, records

__all__ = ["gpus"]
SWEEP = ("sweep", "--kernel", str(FOLDER / "many.cu"), "--shape", "64x64x64")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, resources={"GPU": 1}, dashboard_address=None,
        silence_logs=50,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def address(cluster: LocalCluster, gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> str:
    gpus.count = 2
    monkeypatch.setattr(sweep_cluster, "child_argv", gpus.argv)
    inside = cluster.scheduler_address
    connect = sweep_cluster.connect
    monkeypatch.setattr(sweep_cluster, "connect", lambda address: connect(address.replace("dask://test", inside)))
    return "dask://test"


class Unpickled:
    """A function that workers of this process call as it is."""

    known: ClassVar[dict[int, Callable[..., Any]]] = {}

    def __init__(self, function: Callable[..., Any]) -> None:
        self.known[id(self)] = function
        self.number = id(self)

    def __call__(self, *arguments: Any) -> Any:
        return self.known[self.number](*arguments)


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two portions have their GPUs at the same time, however fast one of them is."""
    both, taken, hold = threading.Barrier(2), itertools.count(), slots.hold

    @contextmanager
    def together(found: Sequence[slots.Slot], *rest: Any) -> Iterator[slots.Held]:
        with hold(found, *rest) as held:
            if next(taken) < 2:
                both.wait(60)
            yield held

    monkeypatch.setattr(slots, "hold", together)


@pytest.mark.usefixtures("side_by_side")
def test_the_workers_gpus_share_the_sweep_and_find_what_one_machine_finds(dgw: Dgw, gpus: Gpus, address: str) -> None:
    ended = dgw(*SWEEP, "--engine", address, "--json")
    assert ended.code == 0, ended.err
    assert len(set(gpus.begun("screen"))) == len(gpus.begun("screen")) == 60
    assert {gpu for gpu, policy, _ in gpus.lines if policy == "screen"} == {"GPU-0", "GPU-1"}
    assert len({gpu for gpu, policy, _ in gpus.lines if policy == "final"}) == 1
    alone = dgw(*SWEEP, "--gpus", "0", "--fresh", "--json")
    best = [[r.case.key for r in records(e) if race.verdict(r) == "best"] for e in (ended, alone)]
    assert best[0] == best[1]


def test_each_case_is_kept_as_soon_as_a_worker_tells_of_it(
    dgw: Dgw, gpus: Gpus, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    put = Store.put

    def noting(self: Store, run: str, record: object) -> None:
        kept.append(record.case.key)  # type: ignore[attr-defined]
        put(self, run, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "put", noting)
    told = sweep_cluster._teller
    heard: list[str] = []
    monkeypatch.setattr(
        sweep_cluster, "_teller", lambda topic: lambda record: (heard.append(record.case.key), told(topic)(record))[1]
    )
    dgw(*SWEEP, "--space", "X=1..2", "--engine", address)
    assert set(heard) <= set(kept)
    assert len(set(kept)) == 20


def test_nothing_is_prepared_on_the_workers_but_what_the_command_did_not_send(
    dgw: Dgw, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []

    def noting(case: Case, *rest: Any) -> prepare.Prepared:
        prepared.append(case.key)
        return real(case, *rest)

    real = prepare.prepare
    monkeypatch.setattr(prepare, "prepare", noting)  # of a worker's lots: the command has the function itself
    sweep = (*SWEEP, "--space", "X=1..2", "--engine", address, "--json")
    assert dgw(*sweep).code == 0
    assert not prepared
    pack = parcel.pack
    monkeypatch.setattr(parcel, "pack", lambda lot, known: pack(lot, dict(list(known.items())[5:])))
    assert dgw(*sweep, "--fresh").code == 0
    assert len(set(prepared)) == 5


@pytest.mark.parametrize(("baseline", "left_to_workers"), [("naive", False), ("cublas", True)])
def test_a_baseline_is_compiled_by_the_command_unless_it_is_foreign_code(
    dgw: Dgw, address: str, monkeypatch: pytest.MonkeyPatch, baseline: str, left_to_workers: bool
) -> None:
    prepared: list[str] = []

    def noting(case: Case, *rest: Any) -> prepare.Prepared:
        prepared.append(case.variant.partition("/")[2])
        return real(case, *rest)

    real = prepare.prepare
    monkeypatch.setattr(prepare, "prepare", noting)
    ended = dgw(*SWEEP, "--space", "X=1,Y=1..2", "--against", baseline, "--engine", address, "--json")
    assert ended.code == 0, ended.err
    assert set(prepared) == ({baseline} if left_to_workers else set())
    raced = [record for record in records(ended) if record.get(f"ratio_to_{baseline}")]
    assert len(raced) == 2
    assert {record.case.variant for record in records(ended)} == {"own/many"}


@pytest.mark.parametrize("broken", [1, 2])
@pytest.mark.parametrize("raises", [True, False], ids=["raises", "has none"])
def test_a_worker_that_cannot_say_what_gpu_it_has_is_passed_over(
    dgw: Dgw, address: str, monkeypatch: pytest.MonkeyPatch, broken: int, raises: bool
) -> None:
    asked, answer = itertools.count(), sweep_cluster.look
    first_failed = threading.Event()

    def look(extra: tuple[str, ...]) -> bytes:
        if next(asked) < broken:
            first_failed.set()
            if raises:
                raise ModuleNotFoundError("No module named 'dgw'")
            return msgspec.json.encode(sweep_cluster.Seen(problem="no CUDA device"))
        first_failed.wait(60)
        return answer(extra)

    monkeypatch.setattr(sweep_cluster, "look", Unpickled(look))
    ended = dgw(*SWEEP, "--space", "X=1,Y=1", "--engine", address)
    assert ended.code == (6 if broken == 2 else 0), ended.err
    if broken == 2:
        assert ended.error_is_two_lines(), ended.err
        assert ("No module named 'dgw'" if raises else "no CUDA device") in ended.err


def test_only_sweeps_run_on_a_cluster(dgw: Dgw) -> None:
    ended = dgw("profile", "-v", "naive", "-s", "8x8x8", "--engine", "dask://host:8786")
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    assert "dgw sweep --engine dask://host:8786" in ended.err


def test_a_scheduler_that_does_not_answer_is_named(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_cluster, "PATIENCE_S", 0.2)
    ended = dgw(*SWEEP, "--engine", "dask://127.0.0.1:1")
    assert ended.code == 6
    assert "no dask scheduler answers at dask://127.0.0.1:1" in ended.err


def test_workers_without_a_gpu_are_told_how_to_say_that_they_have_one(
    dgw: Dgw, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_cluster, "gpus_of", lambda client: 0)
    ended = dgw(*SWEEP, "--engine", address)
    assert ended.code == 6
    assert "--resources GPU=1" in ended.err


def test_gpus_are_not_chosen_by_number_on_a_cluster(dgw: Dgw, gpus: Gpus, address: str) -> None:
    ended = dgw(*SWEEP, "--engine", address, "--gpus", "0")
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
