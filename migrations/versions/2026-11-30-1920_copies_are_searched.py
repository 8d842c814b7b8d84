"""search: how far the messages of forks and imports, which have no run, are in it.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
Copies that were made before are marked here; those that a program of before makes meanwhile are not
found by their words.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008_copies_are_searched"
down_revision = "0007_runs_have_no_changes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("sessions", sa.Column("copied_to_seq", sa.BigInteger()))
    op.create_index(
        "ix_sessions_copies_unsearched",
        "sessions",
        ["tenant_id", "id"],
        postgresql_where=sa.text("copied_to_seq IS NOT NULL"),
    )
    op.execute(
        """UPDATE sessions s SET copied_to_seq = (
             SELECT max(seq) FROM journal j WHERE j.tenant_id = s.tenant_id AND j.session_id = s.id
               AND j.kind = 'message' AND j.run_id IS NULL)
           WHERE inherited IS NOT NULL OR parent_id IS NOT NULL"""
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_sessions_copies_unsearched", table_name="sessions")
    op.drop_column("sessions", "copied_to_seq")
