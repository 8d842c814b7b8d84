"""calls that begin: runs know which call they started last.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011_calls_that_begin"
down_revision = "0010_skills"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Runs that are there have null: what their hosts started was not noted.
    op.add_column("runs", sa.Column("begun_call", sa.Text(), nullable=True))
    op.alter_column("runs", "begun_call", server_default=sa.text("''"))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("runs", "begun_call")
