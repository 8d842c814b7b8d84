"""What an absent database raises, for the HTTP layer, which does not know the store."""

from app.store.engine import GONE as GONE
from app.store.engine import gone as gone
