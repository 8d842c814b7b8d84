"""The life of a run: accept, claim, drive, show, end."""
