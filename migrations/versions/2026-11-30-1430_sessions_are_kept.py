"""sessions: tags, user, workspace key, archive, version, what rewinds dropped.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
All columns have defaults that are constants, or are empty at first: no table is written anew.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002_sessions_are_kept"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEXES = ("newest_of_user", "newest_of_workspace", "tags", "metadata")


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "sessions",
        sa.Column(
            "tags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.add_column("sessions", sa.Column("end_user", sa.Text(), nullable=True))
    op.add_column("sessions", sa.Column("workspace_key", sa.Text(), nullable=True))
    op.add_column("sessions", sa.Column("prompted_at", sa.DateTime(timezone=True), nullable=True))
    op.alter_column("sessions", "prompted_at", server_default=sa.text("clock_timestamp()"))
    op.add_column("sessions", sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "sessions", sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False)
    )
    op.add_column(
        "sessions",
        sa.Column(
            "dropped",
            postgresql.INT8MULTIRANGE(),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
    )
    # Sessions in a folder of the host are found by it, those from before too.
    op.execute(
        """UPDATE sessions SET workspace_key = workspace->>'path', prompted_at = updated_at
           WHERE workspace->>'source' = 'directory'"""
    )
    op.create_index(
        "ix_sessions_newest_of_user",
        "sessions",
        ["tenant_id", "end_user", "prompted_at"],
        postgresql_where=sa.text("end_user IS NOT NULL"),
    )
    op.create_index(
        "ix_sessions_newest_of_workspace",
        "sessions",
        ["tenant_id", "workspace_key", "prompted_at"],
        postgresql_where=sa.text("workspace_key IS NOT NULL"),
    )
    op.create_index(
        "ix_sessions_tags",
        "sessions",
        ["tags"],
        postgresql_using="gin",
        postgresql_where=sa.text("tags <> '{}'"),
    )
    op.create_index(
        "ix_sessions_metadata",
        "sessions",
        ["metadata"],
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'::jsonb"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in INDEXES:
        op.drop_index(f"ix_sessions_{name}", table_name="sessions")
    for name in (
        *("dropped", "version", "archived_at", "prompted_at", "workspace_key", "end_user", "tags"),
    ):
        op.drop_column("sessions", name)
