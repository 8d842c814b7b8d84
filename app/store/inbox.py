"""Prompts on their way into a run: rows that wait until the loop takes them in."""

from collections.abc import Sequence

import orjson
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.messages import Prompt
from app.errors import IdTaken
from app.store.engine import Database, sql
from app.store.leases import Lease

PREVIEW_CHARS = 500

# Every statement that inserts prompts reads them from `prompts_json` by these two.
INBOX_COLUMNS = """tenant_id, session_id, run_id, id, uuid, has_client_uuid, is_steer, preview,
    content"""
PROMPT_COLUMNS = "p.id, p.uuid, p.has_client_uuid, p.is_steer, p.preview, p.content"
PROMPT_TYPES = """p(id text, uuid text, has_client_uuid bool, is_steer bool, preview text,
    content text)"""


def prompts_json(prompts: Sequence[Prompt]) -> str:
    """Give prompts in the form that the inserting statements read."""
    rows = [
        {
            "id": prompt.id,
            "uuid": prompt.uuid,
            "has_client_uuid": prompt.has_client_uuid,
            "is_steer": prompt.is_steer,
            "preview": preview(prompt),
            "content": orjson.dumps(prompt.content).decode(),
        }
        for prompt in prompts
    ]
    return orjson.dumps(rows).decode()


def preview(prompt: Prompt) -> str:
    """Give the beginning of a prompt's text, for lists."""
    content = prompt.content
    if isinstance(content, str):
        return content[:PREVIEW_CHARS]
    texts = (part["text"] for part in content if part.get("type") == "text")
    return "\n".join(texts)[:PREVIEW_CHARS]


def uuid_taken(prompts: Sequence[Prompt], detail: str) -> IdTaken | None:
    """Say which message the session has already: it was sent before, by this client or another."""
    for index, prompt in enumerate(prompts):
        if prompt.uuid in detail:
            return IdTaken(
                f"The session has a message {prompt.uuid} already: it was sent before.",
                errors=[
                    {"pointer": f"/messages/{index}/uuid", "code": "taken", "message": "is taken"}
                ],
            )
    return None


def refusal(prompts: Sequence[Prompt], error: IntegrityError) -> IdTaken | IntegrityError:
    """Give what a client sees of a failed insert."""
    driver_error = error.orig.__cause__ if error.orig is not None else None
    return uuid_taken(prompts, str(getattr(driver_error, "detail", ""))) or error


async def insert_prompts(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    run_id: str,
    prompts: Sequence[Prompt],
) -> None:
    """Insert prompts of a run. Raises `IdTaken` for a uuid that the session has already."""
    try:
        await connection.execute(
            sql(
                f"""INSERT INTO inbox ({INBOX_COLUMNS})
                    SELECT :tenant, :session, :run, {PROMPT_COLUMNS}
                    FROM jsonb_to_recordset(CAST(:prompts AS jsonb)) AS {PROMPT_TYPES}"""
            ),
            {
                "tenant": tenant_id,
                "session": session_id,
                "run": run_id,
                "prompts": prompts_json(prompts),
            },
        )
    except IntegrityError as error:
        raise refusal(prompts, error) from None


async def steer(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    run_id: str,
    prompts: Sequence[Prompt],
) -> None:
    """Send prompts into a run that a live host drives; the caller holds the session's row.

    The run cannot end before it has taken them in, or handed them to a run of their own.
    """
    await connection.execute(
        sql(
            """UPDATE sessions SET pending_steers = pending_steers + :n,
                 updated_at = clock_timestamp()
               WHERE tenant_id = :tenant AND id = :session"""
        ),
        {"n": len(prompts), "tenant": tenant_id, "session": session_id},
    )
    await insert_prompts(connection, tenant_id, session_id, run_id, prompts)


async def replace_prompts(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    run_id: str,
    prompts: Sequence[Prompt],
) -> None:
    """Give a run that has not begun other prompts. Raises `IdTaken`."""
    await connection.execute(
        sql("DELETE FROM inbox WHERE tenant_id = :tenant AND run_id = :run"),
        {"tenant": tenant_id, "run": run_id},
    )
    await insert_prompts(connection, tenant_id, session_id, run_id, prompts)


async def waiting_prompts(database: Database, lease: Lease) -> list[Prompt]:
    """Give the prompts of a run that the journal does not hold yet, oldest first."""
    rows = await database.raw.fetch(
        """SELECT id, uuid, content, has_client_uuid, is_steer FROM inbox
           WHERE tenant_id = $1 AND run_id = $2 AND consumed_seq IS NULL ORDER BY position""",
        lease.tenant_id,
        lease.run_id,
    )
    return [
        Prompt(
            row["id"],
            row["uuid"],
            orjson.loads(row["content"]),
            row["has_client_uuid"],
            row["is_steer"],
        )
        for row in rows
    ]
