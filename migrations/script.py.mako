"""${message}.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

from alembic import op
from sqlalchemy.dialects import postgresql
import sqlalchemy as sa

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${downgrades if downgrades else "raise NotImplementedError"}
