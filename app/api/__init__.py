"""HTTP only. Work is reached through `runs`."""
