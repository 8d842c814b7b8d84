"""runs have no changes.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007_runs_have_no_changes"
down_revision = "0006_actions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What is changed of a run stands in its options. No program was ever released that wrote this.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("runs", "changes")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("runs", sa.Column("changes", postgresql.JSONB(), nullable=True))
