import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import FileSeen, ToolFacts, ToolMemory

FACTS = st.builds(
    ToolFacts,
    cwd=st.none() | st.text(min_size=1, max_size=9),
    files=st.dictionaries(
        st.text(max_size=9),
        st.builds(FileSeen, st.text(max_size=9), st.integers(0, 2**62), st.booleans()),
        max_size=3,
    ),
)


@pytest.mark.requirement("loop:resume")
@given(FACTS)
def test_facts_survive_the_journal(facts: ToolFacts) -> None:
    assert ToolFacts.from_json(orjson.loads(orjson.dumps(facts.to_json()))) == facts


@given(FACTS)
def test_facts_are_true_when_they_say_something(facts: ToolFacts) -> None:
    assert bool(facts) == (ToolMemory().plus(facts) != ToolMemory())


def test_the_newest_word_on_a_file_counts_and_the_rest_stays() -> None:
    old, new = FileSeen("1", 1, partial=True), FileSeen("2", 2)
    memory = ToolMemory("/workspace/a", {"x": old, "y": old})
    assert memory.plus(ToolFacts(files={"x": new})) == ToolMemory(
        "/workspace/a", {"x": new, "y": old}
    )
    assert memory.plus(ToolFacts(cwd="/workspace/b")).cwd == "/workspace/b"
    assert memory.plus(ToolFacts(cwd="/workspace/b")).files is memory.files
