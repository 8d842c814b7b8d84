"""A failed run, tried again: what becomes of it is a run of its own.

Only what ended last is tried again: then the conversation is as the run left it, whether its
prompts are sent once more or it goes on where it stopped.
"""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import NotFound, RunNotRetryable, RunUnfinished, SessionBusy
from app.runs.wishes import PromptWish, RetryWish, RunWish
from app.store.retrying import is_dropped, later_run, prompts_of
from app.store.runs import RunRow, find_run
from app.store.waiting import Held, hold_session, hold_sessions_of


@dataclass(frozen=True, slots=True)
class Again:
    """A run that may be tried again, and the run that this makes."""

    failed: RunRow
    wish: RunWish
    """Without prompts when it goes on."""


async def find_again(
    connection: AsyncConnection, tenant_id: str, run_id: str, wish: RetryWish
) -> Again:
    """Find a failed run and lock its session. Raises `NotFound` and, for every other run, a 409.

    Prompts that the conversation never took in are sent in any case.
    """
    await hold_sessions_of(connection, tenant_id, [run_id])
    run = await find_run(connection, tenant_id, run_id)
    if run is None:
        raise NotFound("There is no such run.")
    held = await hold_session(connection, tenant_id, run.session_id)
    await _check(connection, tenant_id, run, held)
    if wish.goes_on:
        await _check_is_kept(connection, tenant_id, run)
    said = await prompts_of(connection, tenant_id, run_id)
    prompts = [PromptWish(one.content) for one in said if not (wish.goes_on and one.was_taken)]
    return Again(
        run,
        RunWish(
            prompts,
            wish.options,
            run.metadata if wish.metadata is None else wish.metadata,
            priority=run.priority,
            deadline_s=wish.deadline_s,
            recovery_policy="fail" if run.recovery_policy == "fail" else "resume",
            max_attempts=run.max_attempts,
            on_disconnect=wish.on_disconnect,
            retries=run_id,
        ),
    )


async def _check(connection: AsyncConnection, tenant_id: str, run: RunRow, held: Held) -> None:
    if run.status != "finished":
        raise RunUnfinished(
            "The run is not over yet. Wait for its end, or cancel it.",
            context={"status": run.status},
        )
    if run.origin == "subagent":
        raise RunNotRetryable(
            "The run is a subagent's: send a prompt to the session, so that the model begins another.",
            context={"origin": run.origin},
        )
    if not run.is_error:
        raise RunNotRetryable(
            "The run succeeded. Send a prompt to the session instead.",
            context={"result_subtype": run.result_subtype},
        )
    if held.first is not None:
        raise SessionBusy(
            f"Run {held.first.run_id} of this session is not over yet: after it, this one is not "
            "the newest any more.",
            context={"active_run_id": held.first.run_id},
        )
    newest = await later_run(connection, tenant_id, run.id)
    if newest is not None:
        raise RunNotRetryable(
            f"Run {newest} came after this one: only a session's newest run can be tried again. "
            "Send a prompt to the session instead.",
            context={"newest_run_id": newest},
        )


async def _check_is_kept(connection: AsyncConnection, tenant_id: str, run: RunRow) -> None:
    if await is_dropped(connection, tenant_id, run.session_id, run.last_seq or 0):
        raise RunNotRetryable(
            "A rewind took the end of this run out of the conversation, so it cannot go on there. "
            "Leave `resume` out to send its prompts again, or send another prompt."
        )
