"""What has happened: the journal, what it cost, who decided, and words to find it by."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR

from app.store.tables.columns import MONEY, count_column, metadata, time_column

journal = Table(
    "journal",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run_id", Text),
    Column("kind", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subtype", Text),
    Column("uuid", Text),
    Column("parent_tool_use_id", Text),
    Column("body", Text, nullable=False),
    Column("facts", Text),
    time_column("at", nullable=False, default_now=True),
    Index(
        "ix_journal_work",
        "tenant_id",
        "session_id",
        "seq",
        postgresql_where=text("facts LIKE '%\"work\":[%'"),
    ),
    # No foreign key: the fence in front of each insert proves the session, at no cost a row.
)

ledger = Table(
    "ledger",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("thread", Text),
    Column("purpose", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("request_id", Text),
    Column("http_status", Integer),
    count_column("input_tokens"),
    count_column("output_tokens"),
    count_column("cache_read_tokens"),
    count_column("cache_write_5m_tokens"),
    count_column("cache_write_1h_tokens"),
    count_column("thinking_tokens"),
    count_column("web_search_requests"),
    Column("cost_usd", MONEY),
    Column("is_estimated", Boolean, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    time_column("at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"]),
    Index("ix_ledger_tenant_id_session_id", "tenant_id", "session_id"),
    Index("ix_ledger_tenant_id_run_id", "tenant_id", "run_id"),
)

audit = Table(
    "audit",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    time_column("at", nullable=False, default_now=True),
    Index("ix_audit_tenant_id_at", "tenant_id", "at", "session_id", "seq"),
)
"""Who decided each call, and why; `seq` is that of the call's result. Outlives its session."""

search = Table(
    "search",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("words", TSVECTOR, nullable=False),
    time_column("at", nullable=False),
    Index("ix_search_words", "words", postgresql_using="gin"),
    Index("ix_search_tenant_id_at_session_id_seq", "tenant_id", "at", "session_id", "seq"),
)
