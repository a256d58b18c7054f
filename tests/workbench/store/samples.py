"""Runs and records with every kind of content."""

from __future__ import annotations

from dgw.model import (
    Artifact,
    Case,
    Check,
    Environment,
    Launch,
    Measurement,
    Plan,
    Pointer,
    Record,
    Run,
    Scalar,
    Source,
    gemm,
)


def a_record(m: int = 64, outcome: str = "ok", variant: str = "cuda/naive") -> Record:
    launch = Launch(
        source=Source(path="cuda/s01_naive.cu", defines=(("BM", 16), ("T", "half"))),
        entry="naive",
        grid=(4, 4, 1),
        block=(16, 16, 1),
        arguments=(Pointer(operand="a"), Scalar(name="m"), Scalar(name="alpha", dtype="f32", value=0.5)),
    )
    return Record(
        case=Case(problem=gemm(m, 64, 32, beta=0.25), variant=variant, config={"BM": 16, "MODE": "fast"}),
        outcome=outcome,  # type: ignore[arg-type]
        environment=Environment(device="NVIDIA H200", driver="580.159", engine="gpu"),
        reason="" if outcome == "ok" else "it went wrong",
        plan=Plan(steps=(launch,), workspaces={"partial": 4096}, tile=(16, 16)),
        check=Check(passed=True, compared=m * 64, worst=(1, 2), error=None, bound=1e-3, relative_error=0.1 + 0.2),
        measurements=(
            Measurement(
                metric="time_cold", value=1.25e-4, unit="s", collector="timing", samples=(1.2e-4, 0.1 + 0.2), low=1e-4
            ),
            Measurement(metric="flops", value=2**70, collector="static"),
            Measurement(metric="one", value=1.0, collector="static"),
            Measurement(metric="occupancy_limiter", value="registers", collector="static"),
            Measurement(metric="tma_inst", absent="not on this GPU because it has no TMA", collector="ncu"),
        ),
        artifacts=(Artifact(kind="cubin", sha256="ab" * 32, bytes=7, name="naive"),),
        flags=("above the roofline: 1.2 of 1.0 PFLOP/s",),
        resume_key=f"resume-{m}-{variant}",
    )


def a_run(name: str = "r1", records: tuple[Record, ...] = (), created: str = "2026-01-01T00:00:00Z") -> Run:
    return Run(
        id=name,
        created=created,
        command=("dgw", "profile", "--shape", "64x64x32"),
        version="0.1.0",
        commit="0" * 40,
        records=records,
    )
