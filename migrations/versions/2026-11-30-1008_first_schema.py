"""first schema.

Recipe: expand, deploy, contract. Add what is new, let both programs run, then remove what is old.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A migration never waits long for a lock that live traffic holds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "idempotency",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("tenant_id", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_created_at", "idempotency", ["created_at"], unique=False)
    op.create_table(
        "journal",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subtype", sa.Text(), nullable=True),
        sa.Column("uuid", sa.Text(), nullable=True),
        sa.Column("parent_tool_use_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("tenant_id", "session_id", "seq", name=op.f("pk_journal")),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("allow_bypass", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
    )
    op.create_table(
        "api_keys",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_api_keys")),
    )
    op.create_index("uq_api_keys_id", "api_keys", ["id"], unique=True)
    op.create_table(
        "sessions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "workspace",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("num_runs", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("pending_steers", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "cost_usd",
            sa.Numeric(precision=18, scale=9),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("inherited", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("forked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_sessions_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_sessions")),
    )
    op.create_index(
        "ix_sessions_owner",
        "sessions",
        ["owner"],
        unique=False,
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.create_index(
        "ix_sessions_tenant_id_created_at_id",
        "sessions",
        ["tenant_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "runs",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("origin", sa.Text(), server_default=sa.text("'api'"), nullable=False),
        sa.Column("parent_run_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("stalled_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("claim_seq", sa.BigInteger(), nullable=True),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("upfront_steers", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("queued_seq", sa.BigInteger(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=True),
        sa.Column("resumed_from", sa.Text(), nullable=True),
        sa.Column("result_subtype", sa.Text(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("is_error", sa.Boolean(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("terminal_reason", sa.Text(), nullable=True),
        sa.Column("num_turns", sa.Integer(), nullable=True),
        sa.Column("result_text", sa.Text(), nullable=True),
        sa.Column("errors", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("permission_denials", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "cache_read_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column(
            "cache_write_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column(
            "cost_usd",
            sa.Numeric(precision=18, scale=9),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("is_estimated", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("cancel_end_reason", sa.Text(), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("recovery_policy", sa.Text(), server_default=sa.text("'resume'"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=True),
        sa.Column("on_disconnect", sa.Text(), server_default=sa.text("'continue'"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            ["sessions.tenant_id", "sessions.id"],
            name=op.f("fk_runs_tenant_id_session_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_runs")),
    )
    op.create_index(
        "ix_runs_tenant_id_created_at_id", "runs", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_index(
        "ix_runs_tenant_id_session_id_queued_seq",
        "runs",
        ["tenant_id", "session_id", "queued_seq"],
        unique=False,
    )
    op.create_index(
        "ix_runs_unfinished",
        "runs",
        ["tenant_id", "session_id", "queued_seq"],
        unique=False,
        postgresql_where=sa.text("status <> 'finished'"),
    )
    op.create_table(
        "inbox",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("has_client_uuid", sa.Boolean(), nullable=False),
        sa.Column("is_steer", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("preview", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("consumed_seq", sa.BigInteger(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            ["runs.tenant_id", "runs.id"],
            name=op.f("fk_inbox_tenant_id_run_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_inbox")),
    )
    op.create_index("ix_inbox_tenant_id_run_id", "inbox", ["tenant_id", "run_id"], unique=False)
    op.create_index(
        "uq_inbox_tenant_id_session_id_uuid",
        "inbox",
        ["tenant_id", "session_id", "uuid"],
        unique=True,
    )
    op.create_table(
        "ledger",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=True),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "cache_read_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column(
            "cache_write_5m_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column(
            "cache_write_1h_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("thinking_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "web_search_requests", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("cost_usd", sa.Numeric(precision=18, scale=9), nullable=True),
        sa.Column("is_estimated", sa.Boolean(), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            ["runs.tenant_id", "runs.id"],
            name=op.f("fk_ledger_tenant_id_run_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_ledger")),
    )
    op.create_index("ix_ledger_tenant_id_run_id", "ledger", ["tenant_id", "run_id"], unique=False)
    op.create_index(
        "ix_ledger_tenant_id_session_id", "ledger", ["tenant_id", "session_id"], unique=False
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_ledger_tenant_id_session_id", table_name="ledger")
    op.drop_index("ix_ledger_tenant_id_run_id", table_name="ledger")
    op.drop_table("ledger")
    op.drop_index("uq_inbox_tenant_id_session_id_uuid", table_name="inbox")
    op.drop_index("ix_inbox_tenant_id_run_id", table_name="inbox")
    op.drop_table("inbox")
    op.drop_index(
        "ix_runs_unfinished", table_name="runs", postgresql_where=sa.text("status <> 'finished'")
    )
    op.drop_index("ix_runs_tenant_id_session_id_queued_seq", table_name="runs")
    op.drop_index("ix_runs_tenant_id_created_at_id", table_name="runs")
    op.drop_table("runs")
    op.drop_index("ix_sessions_tenant_id_created_at_id", table_name="sessions")
    op.drop_index(
        "ix_sessions_owner", table_name="sessions", postgresql_where=sa.text("owner IS NOT NULL")
    )
    op.drop_table("sessions")
    op.drop_index("uq_api_keys_id", table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("tenants")
    op.drop_table("journal")
    op.drop_index("ix_idempotency_created_at", table_name="idempotency")
    op.drop_table("idempotency")
