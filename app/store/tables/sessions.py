"""Sessions: their lease, their options, and what they are found by."""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, INT8MULTIRANGE

from app.store.tables.columns import MONEY, json_column, metadata, time_column

sessions = Table(
    "sessions",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("title", Text),
    json_column("options", "{}"),
    json_column("workspace", "{}"),
    json_column("metadata", "{}"),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", Text),
    time_column("lease_expires_at"),
    Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("num_runs", Integer, nullable=False, server_default=text("0")),
    Column("pending_steers", Integer, nullable=False, server_default=text("0")),
    Column("cost_usd", MONEY, nullable=False, server_default=text("0")),
    json_column("inherited"),
    Column("parent_id", Text),
    time_column("forked_at"),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("end_user", Text),
    Column("workspace_key", Text),
    time_column("prompted_at", default_now=True),
    time_column("archived_at"),
    Column("version", Integer, nullable=False, server_default=text("1")),
    # Seqs that rewinds took out of the conversation: what `session.rewound` says, put together.
    Column("dropped", INT8MULTIRANGE, nullable=False, server_default=text("'{}'")),
    # Where the messages that came with a fork or an import end, until they are searched.
    Column("copied_to_seq", BigInteger),
    time_column("created_at", nullable=False, default_now=True),
    time_column("updated_at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
    Index("ix_sessions_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index(
        "ix_sessions_newest_of_user",
        "tenant_id",
        "end_user",
        "prompted_at",
        postgresql_where=text("end_user IS NOT NULL"),
    ),
    Index(
        "ix_sessions_newest_of_workspace",
        "tenant_id",
        "workspace_key",
        "prompted_at",
        postgresql_where=text("workspace_key IS NOT NULL"),
    ),
    Index(
        "ix_sessions_tags", "tags", postgresql_using="gin", postgresql_where=text("tags <> '{}'")
    ),
    Index(
        "ix_sessions_metadata",
        "metadata",
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=text("metadata <> '{}'::jsonb"),
    ),
    Index(
        "ix_sessions_copies_unsearched",
        "tenant_id",
        "id",
        postgresql_where=text("copied_to_seq IS NOT NULL"),
    ),
    Index("ix_sessions_owner", "owner", postgresql_where=text("owner IS NOT NULL")),
)
