"""Which files an instruction file takes in: `@path` at the start of a word, but not in code.

One pass over the text, whatever stands in it. Spec: tools 16.
"""

import re
from collections.abc import Iterator

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_TICKS = re.compile(r"`+")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:\\ |[^\s\\])+)")
_PUNCTUATION = ".,;:!?)]}\"'"


def imports(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths that each mention may mean: as it stands, then without what ends a phrase."""
    for line in _prose(text):
        for match in _IMPORT.finditer(line):
            path = match[1].replace("\\ ", " ")
            bare = path.rstrip(_PUNCTUATION)
            yield (path, bare) if bare not in {path, ""} else (path,)


def _prose(text: str) -> Iterator[str]:
    """Yield the lines outside of code fences, without their code spans."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        elif "@" in line:
            yield _without_code(line) if "`" in line else line


def _without_code(line: str) -> str:
    ticks = list(_TICKS.finditer(line))
    last = {len(match[0]): number for number, match in enumerate(ticks)}
    kept, at, number = [], 0, 0
    while number < len(ticks):
        opening = ticks[number]
        size = len(opening[0])
        if last[size] == number:  # it has no partner: plain text
            number += 1
            continue
        kept.append(line[at : opening.start()])
        number += 1
        while len(ticks[number][0]) != size:
            number += 1
        at = ticks[number].end()
        number += 1
    return "`".join((*kept, line[at:]))
