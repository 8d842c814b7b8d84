"""search: the words of messages, and which runs are in it.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003_search"
down_revision = "0002_sessions_are_kept"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "search",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("words", postgresql.TSVECTOR(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "session_id", "seq", name=op.f("pk_search")),
    )
    op.create_index("ix_search_words", "search", ["words"], postgresql_using="gin")
    op.create_index(
        "ix_search_tenant_id_at_session_id_seq", "search", ["tenant_id", "at", "session_id", "seq"]
    )
    op.add_column(
        "runs",
        sa.Column("searched", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
    )
    op.create_index(
        "ix_runs_unsearched",
        "runs",
        ["tenant_id", "id"],
        postgresql_where=sa.text("searched = 0"),
    )
    op.create_index(
        "ix_runs_unsearched_finished",
        "runs",
        ["tenant_id", "id"],
        postgresql_where=sa.text("searched = 1 AND status = 'finished'"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_runs_unsearched_finished", table_name="runs")
    op.drop_index("ix_runs_unsearched", table_name="runs")
    op.drop_column("runs", "searched")
    op.drop_table("search")
