"""Records to table rows and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from dgw.errors import StoreError
from dgw.model import Artifact, Case, Check, Defect, Environment, Measurement, Noun, Plan, Record, digest


class Body(Noun, frozen=True, kw_only=True):
    """The parts of a Record that no column holds."""

    case: Case
    reason: str = ""
    plan: Plan | None = None
    check: Check | None = None
    flags: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()


def environment_row(environment: Environment) -> dict[str, Any]:
    """The row of an environment; its key is the digest of its content."""
    return {
        "sha256": digest(environment),
        "device": environment.device,
        "driver": environment.driver,
        "body": msgspec.json.encode(environment).decode(),
    }


def record_row(run_id: str, position: int, record: Record) -> dict[str, Any]:
    """The row of a record without its measurements and artifacts."""
    body = Body(
        case=record.case, reason=record.reason, plan=record.plan, check=record.check, flags=record.flags,
        defects=record.defects,
    )  # fmt: skip
    return {
        "run_id": run_id,
        "position": position,
        "case_key": record.case.key,
        "resume_key": record.resume_key,
        "variant": record.case.variant,
        "shape": record.case.problem.shape,
        "outcome": record.outcome,
        "environment": digest(record.environment),
        "body": msgspec.json.encode(body).decode(),
    }


def measurement_rows(record_id: int, measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """One row for each measurement, in order."""
    return [_measurement_row(record_id, position, found) for position, found in enumerate(measurements)]


def _measurement_row(record_id: int, position: int, found: Measurement) -> dict[str, Any]:
    numeric = isinstance(found.value, int | float)
    return {
        "record_id": record_id,
        "position": position,
        "metric": found.metric,
        "scope": found.scope,
        "number": float(found.value) if numeric and found.value is not None else None,
        "literal": None if found.value is None else msgspec.json.encode(found.value).decode(),
        "unit": found.unit,
        "collector": found.collector,
        "protocol": found.protocol,
        "tier": found.tier,
        "low": found.low,
        "high": found.high,
        "absent": found.absent,
        "samples": np.asarray(found.samples, dtype="<f8").tobytes(),
    }


def artifact_rows(record_id: int, artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
    """One row for each artifact, in order."""
    return [
        {"record_id": record_id, "position": position, **msgspec.structs.asdict(artifact)}
        for position, artifact in enumerate(artifacts)
    ]


def case_of(body: str) -> Case:
    """The case in the body of a record."""
    return msgspec.json.decode(body, type=Body).case


def measurement(row: Mapping[str, Any]) -> Measurement:
    """A measurement from its row."""
    return Measurement(
        metric=row["metric"],
        value=None if row["literal"] is None else msgspec.json.decode(row["literal"], type=int | float | str),
        unit=row["unit"],
        scope=row["scope"],
        collector=row["collector"],
        protocol=row["protocol"],
        samples=tuple(np.frombuffer(row["samples"], dtype="<f8").tolist()),
        low=row["low"],
        high=row["high"],
        absent=row["absent"],
        tier=row["tier"],
    )


def record(
    row: Mapping[str, Any],
    environment: Environment,
    measurements: Sequence[Mapping[str, Any]],
    artifacts: Sequence[Mapping[str, Any]],
) -> Record:
    """A record from its row and the rows that belong to it."""
    try:
        body = msgspec.json.decode(row["body"], type=Body)
    except msgspec.MsgspecError as error:
        hint = "dgw store prune --keep 0, which deletes every run, or another DGW_STORE"
        raise StoreError(f"the record of case {row['case_key']} cannot be read: {error}", hint) from error
    return Record(
        case=body.case,
        outcome=row["outcome"],
        environment=environment,
        reason=body.reason,
        plan=body.plan,
        check=body.check,
        measurements=tuple(measurement(found) for found in measurements),
        artifacts=tuple(
            Artifact(kind=a["kind"], sha256=a["sha256"], bytes=a["bytes"], name=a["name"]) for a in artifacts
        ),
        flags=body.flags,
        defects=body.defects,
        resume_key=row["resume_key"],
    )
