"""What a prompt asks of the demo model, read by a few regular expressions."""

import re
from dataclasses import dataclass

_MAX_PROMPT_CHARS = 600
"""The rules search in cubic time at worst, and this is the service's own event loop."""

_NAME = r"[\"'`“]?([\w*?\[\]{}./-]*[\w*\]}])[\"'`”]?"
_QUOTED = r"[\"“'`](?P<quoted>[^\"”'`]+)[\"”'`]"
_WORD = rf"(?:the (?:word|text|string)s? )?(?:{_QUOTED}|(?P<bare>\w+))"


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_FIND = _rule(rf"\b(?:find|locate|look for)\b[^.?!]*?\bfile (?:named |called )?{_NAME}")
_FIND_ANY = _rule(r"\b(?:find|locate|look for)\b[^.?!]*?\bfile\b")
_READ = _rule(rf"\bread (?:the )?(?:file )?(?:named |called )?{_NAME}")
_READ_IT = _rule(r"\bread (?:it|this|that|the file)\b")
_COUNT_LINES = _rule(
    rf"\b(?:count|how many)\b[^.?!]*?\blines\b[^.?!]*?\b(?:contain|mention|have|has|with)\w* {_WORD}"
)
_COUNT_QUOTED_WORD = _rule(rf"\bcount (?:the )?words? {_QUOTED}")
_COUNT_QUOTED_LINES = _rule(rf"\bcount (?:the |all )?{_QUOTED} lines\b")
_COUNT_OCCURRENCES = (
    _rule(rf"\bhow (?:often|many times)\b[^.?!]*?{_WORD} (?:appear|occur|is\b|come)"),
    _rule(rf"\bcount (?:the )?(?:word|occurrences of|appearances of)s? {_WORD}"),
    _rule(rf"\bcount (?:the |all )?{_QUOTED}"),
)
_COUNT_ALL = _rule(r"\b(?:count|how many)\b[^.?!]*?\b(?P<unit>lines|words|characters)\b")
_WRITE = _rule(rf"\b(?:write|save|put)\b[^?!]*? (?:to|into|in) (?:the |a )?(?:file )?{_NAME}")
_WRITE_TEXT = _rule(r"\bwrite [\"“`]([^\"”`]+)[\"”`] (?:to|into|in)\b")
_RUN = _rule(r"\brun\b[^`\"]*[`\"]([^`\"]+)[`\"]")
_AGAIN = _rule(
    r"\b(?:again|which file|what file|what did you|what was|how many (?:was|were)|remember|before)\b"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a prompt asks for."""

    pattern: str | None = None
    """A file to look for."""
    path: str | None = None
    """A file to read, named outright."""
    needle: str | None = None
    """Text whose lines (or occurrences) are counted."""
    unit: str | None = None
    """What is counted: lines, words, characters, occurrences."""
    target: str | None = None
    """Where the summary, or the text, goes."""
    text: str | None = None
    """What to write, word for word."""
    command: str | None = None
    """What to run."""
    looks_back: bool = False
    """Whether it asks about what was found before."""

    @property
    def wants_file(self) -> bool:
        return any((self.pattern, self.path, self.unit, self.target))


def plan_of(prompt: str) -> Plan:
    """Read a prompt, as far as the rules may look."""
    prompt = prompt[:_MAX_PROMPT_CHARS]
    unit, needle = _counted(prompt)
    pattern = _file_name(_FIND, prompt)
    path = None if pattern else _file_name(_READ, prompt)
    if pattern is None and path is None and _FIND_ANY.search(prompt):
        pattern = "*"
    if unit is None and _READ_IT.search(prompt):
        unit = "lines"
    text, command = _WRITE_TEXT.search(prompt), _RUN.search(prompt)
    return Plan(
        pattern=pattern,
        path=path,
        needle=needle,
        unit=unit,
        target=_file_name(_WRITE, prompt),
        text=text[1] if text else None,
        command=command[1] if command else None,
        looks_back=pattern is None and path is None and _AGAIN.search(prompt) is not None,
    )


def _file_name(rule: re.Pattern[str], prompt: str) -> str | None:
    """Give the name that a rule found, if it looks like one: “read it” names no file."""
    match = rule.search(prompt)
    return match[1] if match and re.search(r"[./*]", match[1]) else None


def _counted(prompt: str) -> tuple[str | None, str | None]:
    """Give what is to be counted: its unit, and the text that it must hold."""
    for rule in (_COUNT_LINES, _COUNT_QUOTED_LINES):
        if match := rule.search(prompt):
            return "lines", _needle(match)
    if match := _COUNT_QUOTED_WORD.search(prompt):
        return "occurrences", _needle(match)
    if match := _COUNT_ALL.search(prompt):
        return match["unit"].lower(), None
    for rule in _COUNT_OCCURRENCES:
        if match := rule.search(prompt):
            return "occurrences", _needle(match)
    return None, None


def _needle(match: re.Match[str]) -> str:
    words = match.groupdict()
    return words.get("quoted") or words.get("bare") or ""
