import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from app.cli.plain import few_lines, json_line, one_line, plain, shown


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a new title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;Y29weQ==\x07", ""),
        ("a\x1bP1$r\x1b\\b", "ab"),
        ("\x9b2Jgone", "gone"),
        ("\x1bcreset", "reset"),
        ("safe\x1b[1A\x1b[2Kevil", "safeevil"),
        ("50%\r100%\n", "50%\n100%\n"),
        ("line\r\nline", "line\nline"),
        ("bell\x07 back\x08space nul\x00", "bell backspace nul"),
        ("file\u202egpj.exe", "filegpj.exe"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("tab\tand ünïcode 你好", "tab\tand ünïcode 你好"),
    ],
)
def test_control_sequences_are_taken_out_and_the_text_stays(hostile: str, harmless: str) -> None:
    assert plain(hostile) == harmless


def test_a_sequence_that_never_ends_does_not_hide_the_text_behind_it() -> None:
    assert "rm -rf" in plain("\x1b]0;rm -rf / and no end")
    assert "rm -rf" in plain("\x1bPrm -rf / and no end")


@given(st.text(st.characters(codec=None), max_size=200))
def test_no_text_leaves_a_control_character_but_newline_and_tab(text: str) -> None:
    left = plain(text)
    assert not any(
        (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) <= 0x9F or 0xD800 <= ord(c) <= 0xDFFF
        for c in left
    )
    assert plain(left) == left


def test_square_brackets_are_printed_as_they_are() -> None:
    console = Console(force_terminal=True, width=80)
    with console.capture() as capture:
        console.print(shown("[bold]x[/bold] [link=http://evil]y[/link] [/] \\[z] :skull:"))
    assert "[bold]x[/bold] [link=http://evil]y[/link] [/] \\[z] :skull:" in capture.get()


def test_long_text_is_cut_to_one_line() -> None:
    assert one_line("a\n b\t c", 10) == "a b c"
    assert one_line("abcdefghij", 5) == "abcd…"


def test_many_lines_are_cut_and_counted() -> None:
    assert few_lines("1\n2\n3\n4\n5\n", 3, 80) == ["1", "2", "3", "… 2 more lines"]
    assert few_lines("1\n2", 3, 80) == ["1", "2"]
    assert few_lines("x" * 20, 3, 10) == ["x" * 9 + "…"]


def test_a_line_of_json_means_the_same_and_holds_nothing_that_a_terminal_obeys() -> None:
    body = json.dumps({"text": "\x9b31m \u202e \u2028 ünï \x7f"}, ensure_ascii=False)
    line = json_line(body)
    assert json.loads(line) == json.loads(body)
    assert plain(line) == line
    assert "ünï" in line
