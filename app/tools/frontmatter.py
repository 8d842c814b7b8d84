"""The head of a Markdown file: YAML between two lines of `---`, as skills, commands and agents have it.

Such files are a stranger's. Every value is read as text or as a list of texts, so that `no` and
`007` stay what they are, and nothing is built that the text names (tags, aliases).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from app.domain.text import printable

MAX_HEAD_CHARS = 16 * 1024
_HEAD = re.compile(r"\ufeff?---[ \t]*\r?\n((?:.*\n)*?)---[ \t]*(?:\r?\n|\Z)")
IN_PARENTHESES = r"\([^)]*+(?:\)|\Z)"
"""One that is not closed takes all that follows, so that who reads it sees that. To look for its end
from each of thousands anew would take seconds."""
_ONE = re.compile(rf"(?:[^,(]|{IN_PARENTHESES})+")


@dataclass(frozen=True, slots=True)
class Document:
    """A file's head and what follows it."""

    body: str
    fields: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Empty when there is no head, or none that is YAML."""

    def text(self, name: str) -> str | None:
        """Give a field as one text; None when it is missing or blank."""
        value = self.fields.get(name)
        if value is None or isinstance(value, tuple):
            return None
        return value.strip() or None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Give a field as yes or no."""
        value = self.text(name)
        return default if value is None else value.lower() in {"true", "yes", "on"}

    def names(self, name: str) -> tuple[str, ...]:
        """Give a field as a list: one of YAML, or a text with commas outside of parentheses."""
        value = self.fields.get(name, ())
        found = _ONE.findall(value) if isinstance(value, str) else value
        return tuple(each.strip() for each in found if each.strip())


def read_document(text: str) -> Document:
    """Part a text into head and body. A head that is no YAML counts as none. Never raises."""
    found = _HEAD.match(text)
    if found is None:
        return Document(text)
    return Document(text[found.end() :], _fields(found[1]))


def _fields(head: str) -> Mapping[str, str | tuple[str, ...]]:
    if len(head) > MAX_HEAD_CHARS:
        return {}
    try:
        loader = yaml.CBaseLoader(printable(head))
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError):
        return {}
    if not isinstance(node, yaml.MappingNode):
        return {}
    fields: dict[str, str | tuple[str, ...]] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if isinstance(value, yaml.ScalarNode):
            fields[key.value] = value.value
        elif isinstance(value, yaml.SequenceNode):
            # What is nested deeper means nothing here, and is not followed: aliases may be endless.
            each = (item.value for item in value.value if isinstance(item, yaml.ScalarNode))
            fields[key.value] = tuple(each)
    return fields
