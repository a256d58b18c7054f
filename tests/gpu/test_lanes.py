"""Whole runs on a GPU: kernels that cheat among good ones, times that CUPTI confirms, operands beyond 2^31 elements."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Measurement, Operand, Problem, Record, gemm
from dgw.operands import bounds, references
from dgw.operands.shapes import covering_shapes
from dgw.workbench import runner
from dgw.workbench.device.context import Gpu
from dgw.workbench.environment import device_of
from dgw.workbench.protocol import Policy
from dgw.workbench.runner import Job, Session

CHEATS = Path(__file__).parent.parent / "cheats"
VARIANTS = load((CHEATS,))
SIZES = (1, 7, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257)
CHECK, TIME = frozenset({"check"}), frozenset({"check", "time"})


@pytest.fixture(scope="module")
def session(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(
        variants=VARIANTS,
        device=device_of(gpu),
        child_argv=[sys.executable, "-m", "dgw", "child", "--extra", str(CHEATS)],
        cache_dir=tmp_path_factory.mktemp("cache"),
        deadline_s=10.0,
        policy=Policy(turns=10, energy_s=0.3),
    )


def case(name: str, problem: Problem) -> Case:
    return Case(problem=problem, variant=name, version=VARIANTS[name].version, config=VARIANTS[name].defaults())


def run(session: Session, jobs: Sequence[Job], **changes: Any) -> list[Record]:
    handed: list[Record] = []
    found = runner.run(jobs, replace(session, **changes), handed.append)
    assert {record.case.key for record in handed} == {job.case.key for job in jobs}
    return found


def number(record: Record, metric: str) -> float:
    found = record.number(metric)
    assert found is not None, (metric, record.get(metric))
    return found


def test_kernels_that_cheat_get_their_outcome_and_honest_ones_complete(session: Session) -> None:
    problem = gemm(130, 70, 45, "f32")
    names = [name for name in VARIANTS if name.startswith("cheats/")]
    jobs = [Job(case(name, problem), TIME) for name in [*names, "cuda/naive", "cuda/tiled", "cuda/swizzled"]]
    found = {record.case.variant: record for record in run(session, jobs)}
    assert {name: record.outcome for name, record in found.items()} == {
        "cheats/does-not-compile": "compile-failed", "cheats/drops-last-k": "wrong", "cheats/honest": "ok",
        "cheats/illegal-address": "crashed", "cheats/launches-nothing": "wrong", "cheats/never-ends": "timed-out",
        "cheats/out-of-bounds": "wrong", "cheats/too-much-shared": "launch-failed", "cheats/writes-inputs": "wrong",
        "cheats/writes-nothing": "wrong", "cuda/naive": "ok", "cuda/tiled": "ok", "cuda/swizzled": "ok",
    }  # fmt: skip
    assert "outside d" in found["cheats/out-of-bounds"].reason
    assert "input a" in found["cheats/writes-inputs"].reason
    assert number(found["cuda/swizzled"], "time_hot") > 0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_the_first_stages_are_right_for_every_pair_of_ragged_sizes_and_every_layout(
    session: Session, dtype: str
) -> None:
    triples = covering_shapes(SIZES)
    assert len(triples) >= 60
    layouts = ("nn", "nt", "tn", "tt")
    jobs = [
        Job(case(f"cuda/{name}", gemm(m, n, k, dtype, layouts[i % 4], seed=i)), CHECK)
        for i, (m, n, k) in enumerate(triples)
        for name in ("naive", "tiled", "swizzled")
    ]
    wrong = [(r.case.variant, r.case.problem.shape, r.case.problem.layout, r.outcome, r.reason)
             for r in run(session, jobs) if r.outcome != "ok"]  # fmt: skip
    assert not wrong


def test_an_operand_may_have_more_than_two_to_the_31_elements(session: Session, gpu: Gpu) -> None:
    problem = gemm(65537, 33, 32771, "f16", "nt")
    if gpu.free_bytes() < 12 << 30:
        pytest.skip("needs 12 GiB of device memory")
    (record,) = run(session, [Job(case("cuda/tiled", problem), CHECK)], deadline_s=60.0)
    assert record.outcome == "ok"
    assert record.check is not None
    assert record.check.compared == 65537 * 33


def test_cublas_is_timed_in_the_same_lane_and_cupti_agrees_with_the_samples(session: Session) -> None:
    pytest.importorskip("torch")
    problem = gemm(2048, 2048, 2048, "f32")
    base = case("baselines/cublas", problem)
    jobs = [Job(base, TIME), Job(case("cuda/swizzled", problem), TIME, (base,))]
    cublas, swizzled = run(session, jobs, activity=True)
    assert (cublas.outcome, swizzled.outcome) == ("ok", "ok"), (cublas.reason, swizzled.reason)
    ratio = swizzled.get("ratio_to_cublas")
    assert isinstance(ratio, Measurement)
    assert ratio.value == pytest.approx(number(cublas, "time_cold") / number(swizzled, "time_cold"), rel=0.05)
    for record in (cublas, swizzled):
        assert number(record, "kernel_duration") == pytest.approx(number(record, "time_cold"), rel=0.03)
        assert number(record, "energy") > 0
        assert 0.2e9 < number(record, "sm_clock") < 4e9
        assert not record.flags


def test_small_problems_are_timed_hot_only(session: Session) -> None:
    (record,) = run(session, [Job(case("cuda/swizzled", gemm(64, 64, 64, "f16")), TIME)])
    cold = record.get("time_cold")
    assert cold is not None
    assert "hot only" in cold.absent
    assert number(record, "time_hot") < 1e-3


def test_the_gpus_verdict_on_a_tiny_problem_is_that_of_numpy(session: Session) -> None:
    problem = Problem(m=5, n=6, k=7, a=Operand(dtype="f32"), b=Operand(dtype="f32"), d=Operand(dtype="f32"), seed=3)
    (record,) = run(session, [Job(case("cheats/drops-last-k", problem), CHECK)])
    exact = references.block_reference(problem)
    inputs = references.block_inputs(problem)
    got = (inputs["a"][:, :-1] @ inputs["b"][:-1]).astype("f4")
    model = bounds.compare(problem, got, exact)
    assert record.check is not None
    assert record.check.worst == model.worst
    assert record.check.error == pytest.approx(model.error, rel=1e-3)
    assert record.check.bound == pytest.approx(model.bound, rel=1e-6)
