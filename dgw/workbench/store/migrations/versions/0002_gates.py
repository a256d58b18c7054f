"""Gates: their reports, the pairs that they measured, calibrations of counters."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gate",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_gate_created", "gate", ["created"])
    op.create_index("ix_gate_kind_subject", "gate", ["kind", "subject"])
