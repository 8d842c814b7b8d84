"""index work.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005_index_work"
down_revision = "0004_cancel_spares_tasks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds. Nobody has a grown journal
    # yet: a later index on it is to be made concurrently.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(
        "ix_journal_work",
        "journal",
        ["tenant_id", "session_id", "seq"],
        unique=False,
        postgresql_where=sa.text("facts LIKE '%\"work\":[%'"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_journal_work", table_name="journal")
