"""Cases that end otherwise with us, the decision that says so, and what we do instead.

The decisions are in `tests/spec/README.md`, but for those named ADR (`docs/adr/`) and promise
(`docs/architecture.md`, What is promised).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ours:
    """What is expected instead of what was observed."""

    decision: str
    why: str
    expect: Json = field(default_factory=dict)
    """Laid over the case's `expect`, key by key; what does not depart stays as observed."""
    each: Mapping[int, Json] = field(default_factory=dict)
    """Instead of these elements of the case's `each`."""
    unsupported: str | None = None
    """The option for which the whole run is refused (422)."""


def _exact(**files: str) -> Ours:
    names = {name.replace("_", "."): content for name, content in files.items()}
    return Ours("B21", "content is stored as given, blanks at line ends too", {"file_after": names})


_UNREAD = {"is_error": True, "contains": [], "kind": "not_read_yet"}
_B20 = "a Write over content that was not read is refused; an Edit needs no Read"

OURS: Mapping[str, Ours] = {
    "edit-trailing-ws-new": _exact(a_py="x = 3   \nz = 4\t\ny = 2\n"),
    "write-trailing-ws": _exact(t_py="x  \n\ty\t\n\n\n"),
    "more-edit-ws-only-new": _exact(a_py="   \nb\n"),
    "more-edit-new-trailing-nl": _exact(a_py="A  \n\nb\n"),
    "more-write-mdx-ws": _exact(
        Makefile="x  \n", t_MD="x  \n", t_markdown="x  \n", t_mdx="x  \n", t_txt="x  \n"
    ),
    "fin-write-md-ws": _exact(t_md="x  \ny\t\n", u_txt="x  \ny\t\n"),
    "write-overwrite-unread": Ours(
        "B20", _B20, {**_UNREAD, "file_after": {"a.txt": "alpha\nbeta\ngamma\n"}}
    ),
    "write-bash-created": Ours(
        "B20", _B20, {**_UNREAD, "file_after": {"b.txt": "hi\n"}}, each={1: _UNREAD}
    ),
    "old-edit-unread": Ours(
        "B20",
        f"{_B20}, whatever the model is called",
        {
            "is_error": False,
            "kind": None,
            "file_after": {
                "a.txt": "alpha\nB\ngamma\n",
                "b.txt": "alpha\nbeta\ngamma\n",
                "c.txt": "alpha\nbeta\nG\n",
                "d.txt": "alpha\nB\ngamma\n",
                "e.txt": "x\n",
                "f.txt": "alpha\nB\ngamma\n",
            },
        },
        each={0: {"is_error": False}, 6: {"is_error": False}, 8: {"is_error": False}},
    ),
    "bash-cd-adddir": Ours(
        "unsupported_option", "there are no additional folders", unsupported="add_dirs"
    ),
    "bash-parallel-fail": Ours(
        "ADR 9",
        "a path outside the session's folders is refused, whether there is such a file or not",
        {"kind": "outside"},
        each={2: {"is_error": True, "kind": "outside"}},
    ),
    "fin-bash-cd-and-false": Ours(
        "ADR 9",
        "the workspace is /workspace for the agent, wherever it lies",
        each={1: {"is_error": False, "result_equals": "workspace"}},
    ),
    "bash-binary": Ours(
        "promise 9", "a NUL becomes U+2400", {"result_equals": "\u2400\x01\ufffd\ufffdabc"}
    ),
}


NOT_YET: Mapping[str, str] = {}
"""Cases that fail until somebody has built something: the case, and what it waits for.

A case that stands here and passes fails its test: then its line goes.
"""
