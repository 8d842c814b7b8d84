"""What a search finds."""

from app.api.schemas.common import Out, Page
from app.domain.messages import wire_time
from app.runs.searching import Found


class SearchHit(Out):
    """A message in which the words stand."""

    session_id: str
    session_title: str | None
    seq: int
    """Of the message in the session's log."""
    run_id: str | None
    uuid: str
    type: str
    """`user` (prompts, tool results) or `assistant`."""
    at: str
    excerpt: str
    """The text around the first of the words. Empty for a message that is too large to show."""

    @staticmethod
    def of(found: Found) -> "SearchHit":
        """Show a hit."""
        hit = found.hit
        return SearchHit(
            session_id=hit.session_id,
            session_title=hit.title,
            seq=hit.seq,
            run_id=hit.run_id,
            uuid=hit.uuid,
            type=hit.type,
            at=wire_time(hit.at),
            excerpt=found.excerpt,
        )


class SearchPage(Page):
    data: list[SearchHit]
