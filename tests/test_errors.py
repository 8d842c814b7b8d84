import re
from pathlib import Path

from app import errors
from app.api.problem_pages import MEANINGS
from app.errors import RequestError

DOCUMENT = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
ROW = re.compile(
    r"^\| `(?P<code>\w+)` \| (?P<status>\d{3}) \| (?P<again>yes|no) \| (?P<text>.+) \|$"
)


def kinds() -> list[type[RequestError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, RequestError)]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in kinds()]
    assert sorted(codes) == sorted(set(codes))


def test_every_error_says_its_code_in_words_that_fit_an_address() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code) for kind in kinds())


def test_the_document_lists_exactly_the_errors_there_are() -> None:
    rows = [match for line in DOCUMENT.splitlines() if (match := ROW.match(line))]
    listed = [(row["code"], int(row["status"]), row["again"], row["text"]) for row in rows]
    there = [
        (kind.code, kind.status, "yes" if kind.retryable else "no", MEANINGS[kind.code])
        for kind in kinds()
    ]
    assert sorted(listed) == sorted(there)
    assert set(MEANINGS) == {kind.code for kind in kinds()}
