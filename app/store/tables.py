"""The schema. `migrations/` builds it; a test holds the two against each other.

Every key starts with the tenant: sessions never join across, so the tables can be distributed.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INT8MULTIRANGE, JSONB, TSVECTOR

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_MONEY = Numeric(18, 9)
_NOW = func.clock_timestamp()


def _time(name: str, *, nullable: bool = True, default_now: bool = False) -> Column[object]:
    server_default = _NOW if default_now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=server_default)


def _json(name: str, default: str | None = None) -> Column[object]:
    server_default = text(f"'{default}'::jsonb") if default else None
    return Column(name, JSONB, nullable=default is None, server_default=server_default)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("allow_bypass", Boolean, nullable=False, server_default=text("false")),
    _json("policy", "{}"),
    _time("created_at", nullable=False, default_now=True),
)

audit = Table(
    "audit",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    _time("at", nullable=False, default_now=True),
    Index("ix_audit_tenant_id_at", "tenant_id", "at", "session_id", "seq"),
)
"""Who decided each call, and why; `seq` is that of the call's result. Outlives its session."""

skills = Table(
    "skills",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    _json("note", "{}"),
    _json("files", "[]"),
    Column("archive", LargeBinary, nullable=False),
    _time("created_at", nullable=False, default_now=True),
    _time("updated_at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
)
"""What tenants uploaded; `archive` is the files, packed, and `sha256` theirs."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("sha256", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    _time("created_at", nullable=False, default_now=True),
    _time("revoked_at"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
    Index("uq_api_keys_id", "id", unique=True),
)

sessions = Table(
    "sessions",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("title", Text),
    _json("options", "{}"),
    _json("workspace", "{}"),
    _json("metadata", "{}"),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", Text),
    _time("lease_expires_at"),
    Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("num_runs", Integer, nullable=False, server_default=text("0")),
    Column("pending_steers", Integer, nullable=False, server_default=text("0")),
    Column("cost_usd", _MONEY, nullable=False, server_default=text("0")),
    _json("inherited"),
    Column("parent_id", Text),
    _time("forked_at"),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("end_user", Text),
    Column("workspace_key", Text),
    _time("prompted_at", default_now=True),
    _time("archived_at"),
    Column("version", Integer, nullable=False, server_default=text("1")),
    # Seqs that rewinds took out of the conversation: what `session.rewound` says, put together.
    Column("dropped", INT8MULTIRANGE, nullable=False, server_default=text("'{}'")),
    # Where the messages that came with a fork or an import end, until they are searched.
    Column("copied_to_seq", BigInteger),
    _time("created_at", nullable=False, default_now=True),
    _time("updated_at", nullable=False, default_now=True),
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

runs = Table(
    "runs",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    _json("options", "{}"),
    # Of a finished run: those of a run that follows by itself, where a client changed them since.
    _json("next_options"),
    _json("metadata", "{}"),
    Column("origin", Text, nullable=False, server_default=text("'api'")),
    Column("parent_run_id", Text),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("stalled_attempts", Integer, nullable=False, server_default=text("0")),
    Column("claim_seq", BigInteger),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("upfront_steers", Integer, nullable=False, server_default=text("0")),
    Column("queued_seq", BigInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger),
    Column("resumed_from", Text),
    Column("result_subtype", Text),
    Column("end_reason", Text),
    Column("is_error", Boolean),
    Column("stop_reason", Text),
    Column("terminal_reason", Text),
    Column("num_turns", Integer),
    Column("result_text", Text),
    _json("errors"),
    _json("permission_denials"),
    _count("input_tokens"),
    _count("output_tokens"),
    _count("cache_read_tokens"),
    _count("cache_write_tokens"),
    Column("cost_usd", _MONEY, nullable=False, server_default=text("0")),
    Column("is_estimated", Boolean, nullable=False, server_default=text("false")),
    _time("cancel_requested_at"),
    Column("cancel_reason", Text),
    Column("cancel_end_reason", Text),
    Column("cancel_spares_tasks", Boolean, nullable=False, server_default=text("false")),
    _time("deadline_at"),
    Column("recovery_policy", Text, nullable=False, server_default=text("'resume'")),
    Column("max_attempts", Integer),
    Column("on_disconnect", Text, nullable=False, server_default=text("'continue'")),
    Column("searched", SmallInteger, nullable=False, server_default=text("0")),
    # Waits for an answer without a host: nobody claims it before there is one. It has waited so until
    # it is claimed.
    Column("is_parked", Boolean, nullable=False, server_default=text("false")),
    Column("has_waited", Boolean, nullable=False, server_default=text("false")),
    # The call that a host began last, noted before it did, in a run that asks people. Null: of a run
    # that is older than the note.
    Column("begun_call", Text, server_default=text("''")),
    # Of a subagent in the background: what it was given, and whether its end is to be told still.
    _json("launched"),
    Column("is_untold", Boolean, nullable=False, server_default=text("false")),
    _time("created_at", nullable=False, default_now=True),
    _time("started_at"),
    _time("finished_at"),
    ForeignKeyConstraint(["tenant_id", "session_id"], ["sessions.tenant_id", "sessions.id"]),
    Index("ix_runs_tenant_id_session_id_queued_seq", "tenant_id", "session_id", "queued_seq"),
    Index("ix_runs_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index(
        "ix_runs_unfinished",
        "tenant_id",
        "session_id",
        "queued_seq",
        postgresql_where=text("status <> 'finished'"),
    ),
    Index(
        "ix_runs_claimable",
        "tenant_id",
        "session_id",
        postgresql_where=text("status <> 'finished' AND NOT is_parked"),
    ),
    Index("ix_runs_parked_until", "deadline_at", postgresql_where=text("is_parked")),
    Index(
        "ix_runs_beside",
        "tenant_id",
        "session_id",
        postgresql_where=text("origin = 'subagent' AND (status <> 'finished' OR is_untold)"),
    ),
    Index("ix_runs_unsearched", "tenant_id", "id", postgresql_where=text("searched = 0")),
    Index(
        "ix_runs_unsearched_finished",
        "tenant_id",
        "id",
        postgresql_where=text("searched = 1 AND status = 'finished'"),
    ),
)

actions = Table(
    "actions",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("tool_use_id", Text, nullable=False),
    Column("tool_name", Text, nullable=False),
    # Of the subagent whose call it is: who began it, and its own id.
    Column("parent_tool_use_id", Text),
    Column("agent_id", Text),
    Column("sha256", LargeBinary, nullable=False),
    Column("request", Text, nullable=False),
    Column("answer", Text),
    Column("answered_by", Text),
    Column("opened_seq", BigInteger, nullable=False),
    Column("on_timeout", Text, nullable=False),
    _time("created_at", nullable=False, default_now=True),
    _time("expires_at", nullable=False),
    _time("settled_at"),
    # Its answer was taken, under the fence, before what it allows began.
    _time("used_at"),
    ForeignKeyConstraint(["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"]),
    Index("ix_actions_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index("ix_actions_tenant_id_session_id_created_at", "tenant_id", "session_id", "created_at"),
    Index("ix_actions_tenant_id_run_id_tool_use_id", "tenant_id", "run_id", "tool_use_id"),
    Index(
        "ix_actions_pending",
        "tenant_id",
        "created_at",
        "id",
        postgresql_where=text("status = 'pending'"),
    ),
    Index("ix_actions_due", "expires_at", postgresql_where=text("status = 'pending'")),
    Index(
        "uq_actions_open",
        "tenant_id",
        "run_id",
        "tool_use_id",
        unique=True,
        postgresql_where=text("status = 'pending'"),
    ),
)

search = Table(
    "search",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("words", TSVECTOR, nullable=False),
    _time("at", nullable=False),
    Index("ix_search_words", "words", postgresql_using="gin"),
    Index("ix_search_tenant_id_at_session_id_seq", "tenant_id", "at", "session_id", "seq"),
)

inbox = Table(
    "inbox",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("position", BigInteger, Identity(always=True), nullable=False),
    Column("uuid", Text, nullable=False),
    Column("has_client_uuid", Boolean, nullable=False),
    Column("is_steer", Boolean, nullable=False, server_default=text("false")),
    Column("preview", Text),
    Column("content", Text, nullable=False),
    Column("consumed_seq", BigInteger),
    _time("created_at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"]),
    Index("ix_inbox_tenant_id_run_id", "tenant_id", "run_id"),
    Index("uq_inbox_tenant_id_session_id_uuid", "tenant_id", "session_id", "uuid", unique=True),
)

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
    _time("at", nullable=False, default_now=True),
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
    _count("input_tokens"),
    _count("output_tokens"),
    _count("cache_read_tokens"),
    _count("cache_write_5m_tokens"),
    _count("cache_write_1h_tokens"),
    _count("thinking_tokens"),
    _count("web_search_requests"),
    Column("cost_usd", _MONEY),
    Column("is_estimated", Boolean, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    _time("at", nullable=False, default_now=True),
    ForeignKeyConstraint(["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"]),
    Index("ix_ledger_tenant_id_session_id", "tenant_id", "session_id"),
    Index("ix_ledger_tenant_id_run_id", "tenant_id", "run_id"),
)

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
    _time("created_at", nullable=False, default_now=True),
    Index("ix_idempotency_created_at", "created_at"),
)
