"""next options: what a client changed for the run that follows a finished one.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014_next_options"
down_revision = "0013_who_asks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("runs", sa.Column("next_options", JSONB(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("runs", "next_options")
