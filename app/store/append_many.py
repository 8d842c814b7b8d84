"""The append of several sessions in one statement: one commit for all of them.

The same fence as in `append`, row for row. A session whose fence does not hold gets no
answer and nothing of its batch is written; the others are not affected by that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.journal import Batch, ServiceEvent
from app.store.engine import Database
from app.store.leases import Lease
from app.store.rows import NewRow, Row, columns, ledger_columns, new_rows, stored_rows


@dataclass(frozen=True, slots=True)
class Write:
    """A batch of one session: no end of a run, and no prompts of the inbox."""

    lease: Lease
    rows: Sequence[NewRow]
    batch: Batch
    now: datetime

    @staticmethod
    def of(lease: Lease, batch: Batch, first: Sequence[ServiceEvent]) -> "Write":
        """Encode a batch; `first` events come before its entries."""
        now = datetime.now(UTC)
        return Write(
            lease, new_rows(batch, lease.session_id, lease.run_id, now, first=first), batch, now
        )

    @property
    def session(self) -> tuple[str, str]:
        return self.lease.tenant_id, self.lease.session_id

    @property
    def size(self) -> int:
        """Characters of the rows."""
        return sum(len(row.body) + len(row.facts or "") for row in self.rows)


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a write."""

    rows: list[Row]
    has_mail: bool
    """Whether prompts wait that were sent into the run."""


async def append_many(database: Database, writes: Sequence[Write]) -> list[Stored | None]:
    """Store the batches of different sessions, all in one transaction; None where the lease is lost.

    Raises what asyncpg raises; then either all of it was stored or nothing.
    """
    numbers = range(len(writes))
    rows = [(number, row) for number in numbers for row in writes[number].rows]
    spent = [(number, row) for number in numbers for row in writes[number].batch.ledger]
    leases = [write.lease for write in writes]
    answers = await database.raw.fetch(
        _APPEND_MANY,
        [lease.tenant_id for lease in leases],
        [lease.session_id for lease in leases],
        [lease.epoch for lease in leases],
        [lease.run_id for lease in leases],
        [len(write.rows) for write in writes],
        [number + 1 for number, _ in rows],
        [place for write in writes for place in range(1, len(write.rows) + 1)],
        *columns([row for _, row in rows]),
        [number + 1 for number, _ in spent],
        *ledger_columns([row for _, row in spent]),
        [row.audit for _, row in rows],
    )
    stored: list[Stored | None] = [None] * len(writes)
    for answer in answers:
        write = writes[answer["g"] - 1]
        new = stored_rows(write.rows, write.lease.run_id, answer["last_seq"], write.now)
        stored[answer["g"] - 1] = Stored(new, answer["pending_steers"] > 0)
    return stored


# Sessions are locked in the order of their keys, as `queue.renew` does: of two statements that lock
# many, neither waits for the other in a circle.
_APPEND_MANY = """
WITH spent AS MATERIALIZED (
  SELECT * FROM unnest($15::int[], $16::text[], $17::text[], $18::text[], $19::text[], $20::int[],
    $21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], $26::bigint[],
    $27::bigint[], $28::numeric[], $29::bool[], $30::int[])
    AS n(g, thread, purpose, model, request_id, http_status, input_tokens, output_tokens,
         cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, thinking_tokens,
         web_search_requests, cost_usd, is_estimated, duration_ms)),
sums AS MATERIALIZED (
  SELECT g, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
    sum(cache_read_tokens) AS cache_read_tokens,
    sum(cache_write_5m_tokens + cache_write_1h_tokens) AS cache_write_tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd, bool_or(is_estimated OR cost_usd IS NULL) AS is_estimated
  FROM spent GROUP BY g),
held AS MATERIALIZED (
  SELECT s.tenant_id, s.id, w.run_id, w.n, w.g
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::int[]) WITH ORDINALITY
    AS w(tenant_id, id, epoch, run_id, n, g)
  JOIN sessions s ON s.tenant_id = w.tenant_id AND s.id = w.id
  WHERE s.epoch = w.epoch AND s.owner IS NOT NULL
  ORDER BY s.tenant_id, s.id FOR NO KEY UPDATE OF s),
f AS (
  UPDATE sessions s SET last_seq = s.last_seq + held.n, updated_at = clock_timestamp(),
    cost_usd = s.cost_usd + coalesce((SELECT cost_usd FROM sums WHERE sums.g = held.g), 0)
  FROM held WHERE s.tenant_id = held.tenant_id AND s.id = held.id
  RETURNING s.tenant_id, s.id, s.last_seq, s.pending_steers, held.run_id, held.n, held.g),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, subtype, uuid,
                       parent_tool_use_id, body, facts)
  SELECT f.tenant_id, f.id, f.last_seq - f.n + o, f.run_id, k, t, s, u, p, b, x
  FROM f JOIN unnest($6::int[], $7::int[], $8::text[], $9::text[], $10::text[], $11::text[],
    $12::text[], $13::text[], $14::text[]) AS n(g, o, k, t, s, u, p, b, x) ON n.g = f.g),
a AS (
  INSERT INTO audit (tenant_id, session_id, seq, run_id, body)
  SELECT f.tenant_id, f.id, f.last_seq - f.n + o, f.run_id, b
  FROM f JOIN unnest($6::int[], $7::int[], $31::text[]) AS n(g, o, b) ON n.g = f.g
  WHERE b IS NOT NULL),
l AS (
  INSERT INTO ledger (tenant_id, session_id, run_id, thread, purpose, model, request_id,
    http_status, input_tokens, output_tokens, cache_read_tokens, cache_write_5m_tokens,
    cache_write_1h_tokens, thinking_tokens, web_search_requests, cost_usd, is_estimated,
    duration_ms)
  SELECT f.tenant_id, f.id, f.run_id, thread, purpose, model, request_id, http_status,
    input_tokens, output_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens,
    thinking_tokens, web_search_requests, cost_usd, is_estimated, duration_ms
  FROM f JOIN spent ON spent.g = f.g),
r AS (
  UPDATE runs SET input_tokens = runs.input_tokens + sums.input_tokens,
    output_tokens = runs.output_tokens + sums.output_tokens,
    cache_read_tokens = runs.cache_read_tokens + sums.cache_read_tokens,
    cache_write_tokens = runs.cache_write_tokens + sums.cache_write_tokens,
    cost_usd = runs.cost_usd + sums.cost_usd,
    is_estimated = runs.is_estimated OR sums.is_estimated
  FROM f JOIN sums ON sums.g = f.g
  WHERE runs.tenant_id = f.tenant_id AND runs.id = f.run_id)
SELECT g, last_seq, pending_steers FROM f"""
