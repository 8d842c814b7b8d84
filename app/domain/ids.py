"""Identifiers. Sessions and messages are UUIDs; our own resources are prefixed ULIDs."""

from typing import NewType

SessionId = NewType("SessionId", str)
"""A lower-case UUID: the `session_id` of every wire message; unique within its tenant."""
RunId = NewType("RunId", str)
"""`run_` and a ULID."""
