"""What slow steps say while a command waits for them (the first start of the database)."""

import logging
import sys


def show_progress() -> None:
    """Print what the start of the service's parts says on standard error, for people."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("app.wiring", "app.store.engine"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
