"""The tables, one schema for SQLite and PostgreSQL: samples are float64 blobs, nested nouns are JSON text."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

HEAD = "0002"
"""The newest migration that this code knows; a store at another revision is migrated or refused."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = BigInteger().with_variant(Integer(), "sqlite")

about = Table(
    "about",
    metadata,
    Column("key", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

run = Table(
    "run",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("created", String(40), nullable=False, index=True),
    Column("command", Text, nullable=False),
    Column("version", String(40), nullable=False),
    Column("commit", String(64), nullable=False),
)

environment = Table(
    "environment",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("device", String(120), nullable=False),
    Column("driver", String(40), nullable=False),
    Column("body", Text, nullable=False),
)

record = Table(
    "record",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("run_id", String(64), ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("case_key", String(16), nullable=False),
    Column("resume_key", String(64), nullable=False, index=True),
    Column("variant", String(120), nullable=False),
    Column("shape", String(80), nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("environment", String(64), ForeignKey("environment.sha256"), nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("run_id", "case_key"),
    Index("ix_record_variant_shape", "variant", "shape"),
)

measurement = Table(
    "measurement",
    metadata,
    Column("record_id", _Id, ForeignKey("record.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("metric", String(120), nullable=False, index=True),
    Column("scope", String(200), nullable=False),
    Column("number", Float(53)),  # for queries; exact integers and text are kept in `literal`
    Column("literal", Text),  # JSON of the value: tells 1 from 1.0 from "1"
    Column("unit", String(40), nullable=False),
    Column("collector", String(40), nullable=False),
    Column("protocol", String(200), nullable=False),
    Column("tier", String(40), nullable=False),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Column("absent", Text, nullable=False),
    Column("samples", LargeBinary, nullable=False),
)

artifact = Table(
    "artifact",
    metadata,
    Column("record_id", _Id, ForeignKey("record.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("sha256", String(64), nullable=False, index=True),
    Column("kind", String(40), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("name", String(200), nullable=False),
)

gate = Table(
    "gate",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("created", String(40), nullable=False, index=True),
    Column("kind", String(20), nullable=False),
    Column("subject", String(64), nullable=False),  # what gates have to have in common to be read together
    Column("code", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("ix_gate_kind_subject", "kind", "subject"),
)
