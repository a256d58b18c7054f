"""The first schema: runs, environments, records, measurements, artifacts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_runs()
    _create_records()
    _create_measurements()


def _create_runs() -> None:
    op.create_table(
        "about",
        sa.Column("key", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("commit", sa.String(64), nullable=False),
    )
    op.create_index("ix_run_created", "run", ["created"])
    op.create_table(
        "environment",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("device", sa.String(120), nullable=False),
        sa.Column("driver", sa.String(40), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def _create_records() -> None:
    op.create_table(
        "record",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("case_key", sa.String(16), nullable=False),
        sa.Column("resume_key", sa.String(64), nullable=False),
        sa.Column("variant", sa.String(120), nullable=False),
        sa.Column("shape", sa.String(80), nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("environment", sa.String(64), sa.ForeignKey("environment.sha256"), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("run_id", "case_key", name="uq_record_run_id_case_key"),
    )
    op.create_index("ix_record_resume_key", "record", ["resume_key"])
    op.create_index("ix_record_variant_shape", "record", ["variant", "shape"])


def _create_measurements() -> None:
    owner = sa.ForeignKey("record.id", ondelete="CASCADE")
    op.create_table(
        "measurement",
        sa.Column("record_id", _ID, owner, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("metric", sa.String(120), nullable=False),
        sa.Column("scope", sa.String(200), nullable=False),
        sa.Column("number", sa.Float(53)),
        sa.Column("literal", sa.Text),
        sa.Column("unit", sa.String(40), nullable=False),
        sa.Column("collector", sa.String(40), nullable=False),
        sa.Column("protocol", sa.String(200), nullable=False),
        sa.Column("tier", sa.String(40), nullable=False),
        sa.Column("low", sa.Float(53)),
        sa.Column("high", sa.Float(53)),
        sa.Column("absent", sa.Text, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_measurement_metric", "measurement", ["metric"])
    op.create_table(
        "artifact",
        sa.Column("record_id", _ID, sa.ForeignKey("record.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
    )
    op.create_index("ix_artifact_sha256", "artifact", ["sha256"])
