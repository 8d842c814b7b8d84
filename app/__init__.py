"""Treadle: a self-hosted agent-as-a-service backend. A session is rows, not a process."""
