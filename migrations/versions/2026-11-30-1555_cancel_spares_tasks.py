"""cancel spares tasks.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004_cancel_spares_tasks"
down_revision = "0003_search"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "runs",
        sa.Column(
            "cancel_spares_tasks", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("runs", "cancel_spares_tasks")
