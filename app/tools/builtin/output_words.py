"""What the model reads of a structured output that a hook put in the place of a tool's own.

A shape for each tool whose output is an object: what it must hold to be of that tool, and how it
reads. Words that depend on more than the object (warnings, pages) are the tool's alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.tools.paths import one_line

WordsOf = Callable[[Mapping[str, Any]], str | None]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @property
    def words(self) -> str:
        """What the model reads."""
        raise NotImplementedError


def words_by(shape: Any) -> WordsOf:  # noqa: ANN401 - a type, or several to choose from
    """Give the function for a tool's `words_of`: None for an object of another shape."""
    reads: TypeAdapter[_Shape] = TypeAdapter(shape)

    def words(structured: Mapping[str, Any]) -> str | None:
        try:
            return reads.validate_python(dict(structured)).words
        except ValidationError:
            return None

    return words


class _File(_Shape):
    content: str
    startLine: Annotated[int, Field(ge=0)]  # noqa: N815 - the wire's names, as those below


class _Read(_Shape):
    type: Literal["text"]
    file: _File

    @property
    def words(self) -> str:
        lines = self.file.content.split("\n")
        return "\n".join(f"{at}\t{line}" for at, line in enumerate(lines, self.file.startLine))


class _Written(_Shape):
    type: Literal["create", "update"]
    filePath: str  # noqa: N815

    @property
    def words(self) -> str:
        return f"{'Created' if self.type == 'create' else 'Updated'} {self.filePath}."


class _Edited(_Shape):
    filePath: str  # noqa: N815
    oldString: str  # noqa: N815
    newString: str  # noqa: N815

    @property
    def words(self) -> str:
        return f"Updated {self.filePath}."


class _Files(_Shape):
    filenames: Sequence[str]
    numFiles: int  # noqa: N815
    totalMatches: int | None = None  # noqa: N815

    @property
    def words(self) -> str:
        if not self.filenames:
            return "No files found"
        listed = "\n".join(map(one_line, self.filenames))
        if (self.totalMatches or 0) <= len(self.filenames):
            return listed
        return f"{listed}\n(Showing {len(self.filenames)} of {self.totalMatches} files.)"


class _FoundFiles(_Files):
    mode: Literal["files_with_matches"]


class _FoundLines(_Shape):
    mode: Literal["content", "count"]
    content: str

    @property
    def words(self) -> str:
        return self.content


class _Fetched(_Shape):
    result: str
    url: str

    @property
    def words(self) -> str:
        return self.result


class _Link(_Shape):
    title: str
    url: str


class _Search(_Shape):
    content: Sequence[_Link]


class _Searched(_Shape):
    query: str
    results: Sequence[str | _Search]

    @property
    def words(self) -> str:
        parts = [f'Web search results for "{self.query}":']
        for each in self.results:
            if isinstance(each, str):
                parts.append(each)
            else:
                links = [link.model_dump() for link in each.content]
                parts.append(f"Links: {orjson.dumps(links).decode()}")
        return "\n\n".join(parts)


class _Task(_Shape):
    id: str
    subject: str
    status: str = ""
    description: str = ""
    owner: str = ""
    blockedBy: Sequence[str] = ()  # noqa: N815

    @property
    def words(self) -> str:
        owner = f" ({self.owner})" if self.owner else ""
        status = f" [{self.status}]" if self.status else ""
        waits = f" [blocked by {', '.join(f'#{each}' for each in self.blockedBy)}]"
        return f"#{self.id}{status} {self.subject}{owner}{waits if self.blockedBy else ''}"


class _OneTask(_Shape):
    task: _Task

    @property
    def words(self) -> str:
        return "\n".join(filter(None, [f"Task {self.task.words}", self.task.description]))


class _Tasks(_Shape):
    tasks: Sequence[_Task]

    @property
    def words(self) -> str:
        return "\n".join(task.words for task in self.tasks) or "There are no tasks."


read_words = words_by(_Read)
write_words = words_by(_Written)
edit_words = words_by(_Edited)
glob_words = words_by(_Files)
grep_words = words_by(Annotated[_FoundFiles | _FoundLines, Field(discriminator="mode")])
fetch_words = words_by(_Fetched)
search_words = words_by(_Searched)
task_words = words_by(_OneTask)
task_list_words = words_by(_Tasks)
