"""subagents in the background.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012_background_subagents"
down_revision = "0011_calls_that_begin"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("runs", sa.Column("launched", postgresql.JSONB(), nullable=True))
    op.add_column(
        "runs",
        sa.Column("is_untold", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.create_index(
        "ix_runs_beside",
        "runs",
        ["tenant_id", "session_id"],
        postgresql_where=sa.text("origin = 'subagent' AND (status <> 'finished' OR is_untold)"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_runs_beside", "runs")
    op.drop_column("runs", "is_untold")
    op.drop_column("runs", "launched")
