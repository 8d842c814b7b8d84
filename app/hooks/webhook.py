"""HTTP hooks of a run's options: a signed POST, whose answer is the hook's output.

Signed as Standard Webhooks are (standardwebhooks.com): `webhook-id` is the same when the same hook
is asked about the same moment again, so a receiver can tell. Goes over the guarded transport; a
redirect is no answer.
"""

from datetime import UTC, datetime

import httpx
import orjson
from standardwebhooks import Webhook

from app.domain.hook_options import HttpHook
from app.domain.text import printable_value
from app.errors import AnswerTooLarge, EgressRefused
from app.hooks.hook import DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S, Asked, Hook, HookFailed, Reply
from app.hooks.matching import matcher_of
from app.sandbox.bounded_body import Caps

CAPS = Caps(
    body_bytes=1_000_000,
    total_s=LONGEST_TIMEOUT_S,
    connect_s=10.0,
    idle_s=LONGEST_TIMEOUT_S,
)
"""Of one answer. The hook's own time-out is what counts."""


def http_hook(given: HttpHook, client: httpx.AsyncClient, signer: Webhook, user_agent: str) -> Hook:
    """Make the hook. `client` is a guarded one, which it does not close."""
    url = httpx.URL(given.url)

    async def ask(asked: Asked) -> Reply:
        body = orjson.dumps(printable_value(asked.input)).decode()
        sent_at = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": user_agent,
            "webhook-id": asked.id,
            "webhook-timestamp": str(int(sent_at.timestamp())),
            "webhook-signature": signer.sign(asked.id, sent_at, body),
        }
        try:
            answer = await client.post(url, content=body, headers=headers)
        except EgressRefused as error:
            raise HookFailed(str(error)) from None
        except AnswerTooLarge as error:
            raise HookFailed(str(error)) from None
        except httpx.HTTPError as error:
            raise HookFailed(f"the request failed ({type(error).__name__})") from None
        return _read(answer)

    # The query may hold a secret.
    shown = str(url.copy_with(query=None, fragment=None))
    return Hook(
        name=shown,
        event=given.event,
        matches=matcher_of(given.matcher),
        ask=ask,
        timeout_s=given.timeout or DEFAULT_TIMEOUT_S,
        on_failure=given.on_failure,
    )


def _read(answer: httpx.Response) -> Reply:
    if not answer.is_success:
        raise HookFailed(f"the server answered {answer.status_code}")
    if not answer.content.strip():
        return Reply()
    try:
        output = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        raise HookFailed("the server's answer is no JSON") from None
    # JSON is UTF-8, whatever the server says of it.
    return Reply(output, answer.content.decode(errors="replace"))
