"""actions.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006_actions"
down_revision = "0005_index_work"
branch_labels = None
depends_on = None


def _time(name: str, *, nullable: bool = True, default_now: bool = False) -> sa.Column[object]:
    server_default = sa.text("clock_timestamp()") if default_now else None
    return sa.Column(
        name, sa.DateTime(timezone=True), nullable=nullable, server_default=server_default
    )


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds. Nobody has many runs yet:
    # a later index on them is to be made concurrently.
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in ("is_parked", "has_waited"):
        op.add_column(
            "runs",
            sa.Column(name, sa.Boolean(), server_default=sa.text("false"), nullable=False),
        )
    op.add_column("runs", sa.Column("changes", postgresql.JSONB(), nullable=True))
    op.create_index(
        "ix_runs_claimable",
        "runs",
        ["tenant_id", "session_id"],
        postgresql_where=sa.text("status <> 'finished' AND NOT is_parked"),
    )
    op.create_index(
        "ix_runs_parked_until", "runs", ["deadline_at"], postgresql_where=sa.text("is_parked")
    )
    op.create_table(
        "actions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("tool_use_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answered_by", sa.Text(), nullable=True),
        sa.Column("opened_seq", sa.BigInteger(), nullable=False),
        sa.Column("on_timeout", sa.Text(), nullable=False),
        _time("created_at", nullable=False, default_now=True),
        _time("expires_at", nullable=False),
        _time("settled_at"),
        _time("used_at"),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_actions")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            ["runs.tenant_id", "runs.id"],
            name=op.f("fk_actions_tenant_id_run_id"),
        ),
    )
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_actions_tenant_id_created_at_id", "actions", ["tenant_id", "created_at", "id"]
    )
    op.create_index(
        "ix_actions_tenant_id_session_id_created_at",
        "actions",
        ["tenant_id", "session_id", "created_at"],
    )
    op.create_index(
        "ix_actions_tenant_id_run_id_tool_use_id", "actions", ["tenant_id", "run_id", "tool_use_id"]
    )
    op.create_index(
        "ix_actions_pending",
        "actions",
        ["tenant_id", "created_at", "id"],
        postgresql_where=pending,
    )
    op.create_index("ix_actions_due", "actions", ["expires_at"], postgresql_where=pending)
    op.create_index(
        "uq_actions_open",
        "actions",
        ["tenant_id", "run_id", "tool_use_id"],
        unique=True,
        postgresql_where=pending,
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("actions")
    op.drop_index("ix_runs_parked_until", table_name="runs")
    op.drop_index("ix_runs_claimable", table_name="runs")
    op.drop_column("runs", "changes")
    op.drop_column("runs", "has_waited")
    op.drop_column("runs", "is_parked")
