"""Tenants, and what is theirs across sessions."""

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)

from app.store.tables.columns import json_column, metadata, time_column

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("allow_bypass", Boolean, nullable=False, server_default=text("false")),
    json_column("policy", "{}"),
    time_column("created_at", nullable=False, default_now=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("sha256", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    time_column("created_at", nullable=False, default_now=True),
    time_column("revoked_at"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
    Index("uq_api_keys_id", "id", unique=True),
)

skills = Table(
    "skills",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    json_column("note", "{}"),
    json_column("files", "[]"),
    Column("archive", LargeBinary, nullable=False),
    time_column("created_at", nullable=False, default_now=True),
    time_column("updated_at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
)
"""What tenants uploaded; `archive` is the files, packed, and `sha256` theirs."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("sha256", LargeBinary, nullable=False),
    Column("status", Integer),
    Column("body", Text),
    Column("run_id", Text),
    Column("location", Text),
    time_column("created_at", nullable=False, default_now=True),
    Index("ix_idempotency_created_at", "created_at"),
)
