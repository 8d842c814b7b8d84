"""Partial messages: from the model's stream to the readers of this host."""

from dataclasses import dataclass, field

import orjson

from app.agent.effects import Clock
from app.domain.model import PartialResponse, StreamPart
from app.runs.live import Hub, Preview
from app.runs.open_message import OpenMessage


@dataclass(frozen=True, slots=True)
class LivePreviews:
    """Frames each event once, and only when somebody here looks."""

    hub: Hub
    clock: Clock
    tenant_id: str
    session_id: str
    run_id: str
    open: OpenMessage = field(default_factory=OpenMessage)
    """What came so far of the message that is on its way."""

    def publish(self, part: StreamPart) -> None:
        self.open.feed(part)
        if not self.hub.wants_previews(self.tenant_id, self.session_id):
            return
        body: dict[str, object] = {
            "type": "stream_event",
            "session_id": self.session_id,
            "uuid": self.clock.uuid(),
            "parent_tool_use_id": None,
            "api_message_id": part.message_id,
            "event": part.event,
        }
        if part.ttft_ms is not None:
            body["ttft_ms"] = part.ttft_ms
        self._send(body, is_text=(part.event.get("delta") or {}).get("type") == "text_delta")

    def complete(self) -> None:
        self.open.close()

    def partial(self) -> PartialResponse | None:
        return self.open.partial()

    def abort(self, message_id: str, reason: str) -> None:
        if reason != "cancelled":  # a cancel still wants the text
            self.open.close()
        self._send(
            {
                "type": "service_preview_aborted",
                "session_id": self.session_id,
                "message_id": message_id,
                "reason": reason,
            },
            is_text=True,
        )

    def _send(self, body: dict[str, object], *, is_text: bool = False) -> None:
        frame = b"event: preview\ndata: " + orjson.dumps(body) + b"\n\n"
        self.hub.preview(self.tenant_id, self.session_id, Preview(self.run_id, frame, is_text))
