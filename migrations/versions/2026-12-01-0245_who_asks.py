"""who asks: actions know the subagent whose call it is.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013_who_asks"
down_revision = "0012_background_subagents"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("actions", sa.Column("parent_tool_use_id", sa.Text(), nullable=True))
    op.add_column("actions", sa.Column("agent_id", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("actions", "agent_id")
    op.drop_column("actions", "parent_tool_use_id")
