"""Sessions as files, written page by page: neither the journal nor the file is held whole.

`stream-json` is what clients saw, whole. The other two are the conversation as it stands: what a
rewind took out is left out.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from app.domain.usage import Spend
from app.runs.transcripts import markdown
from app.runs.transcripts.claude_entries import ClaudeEntries
from app.runs.transcripts.formats import Format
from app.store.engine import Database
from app.store.ledger import spend_of, spends
from app.store.replay import Page, read_page
from app.store.sessions import SessionRow


@dataclass(frozen=True, slots=True)
class Exporter:
    """Writes one session, up to where its log stood when this was made."""

    database: Database
    tenant_id: str
    session: SessionRow
    format: Format

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Give the file piece by piece. No connection is held while a piece is taken."""
        match self.format:
            case "stream-json":
                async for chunk in self._messages(lambda body: f"{body}\n".encode()):
                    yield chunk
            case "claude-jsonl":
                entries = ClaudeEntries(self.session.id)
                async for chunk in self._messages(entries.line):
                    yield chunk
                yield entries.last_lines(self.session.title, await self._spent())
            case "markdown":
                yield markdown.heading(self.session.title, self.session.id)
                async for chunk in self._messages(markdown.section):
                    yield chunk

    async def _messages(self, write: Callable[[str], bytes]) -> AsyncGenerator[bytes]:
        after, has_more = 0, True
        while has_more:
            page = await self._page(after)
            yield b"".join(write(row.body) for row in page.rows)
            has_more = page.has_more
            after = page.rows[-1].seq if page.rows else after

    async def _page(self, after: int) -> Page:
        return await read_page(
            self.database,
            self.tenant_id,
            self.session.id,
            after=after,
            up_to=self.session.last_seq,
            of="messages" if self.format == "stream-json" else "conversation",
        )

    async def _spent(self) -> Spend:
        before, _ = await spends(self.database, self.tenant_id, self.session.id, "")
        return spend_of(self.session.inherited).merged(before)
