from dataclasses import field, replace

import pytest

from app.domain.value import value


@value
class Thing:
    name: str
    size: int = 1
    parts: tuple[str, ...] = field(default_factory=tuple)
    memo: list[int] = field(default_factory=list, init=False, compare=False)


def test_a_value_is_made_compared_and_replaced_as_a_dataclass() -> None:
    thing = Thing("a", parts=("x",))
    assert (thing.name, thing.size, thing.parts, thing.memo) == ("a", 1, ("x",), [])
    assert Thing("a").memo is not thing.memo
    assert replace(thing, size=2) == Thing("a", 2, ("x",))
    assert len({thing, Thing("a", 1, ("x",)), replace(thing, size=2)}) == 2
    assert repr(thing) == "Thing(name='a', size=1, parts=('x',), memo=[])"


def test_a_value_has_no_other_fields_and_misses_none() -> None:
    with pytest.raises(AttributeError):
        Thing("a").weight = 1  # type: ignore[attr-defined]  # that is what fails
    with pytest.raises(TypeError):
        Thing()  # type: ignore[call-arg]  # the same


def test_to_the_type_checker_a_value_is_frozen() -> None:
    Thing("a").size = 2  # type: ignore[misc]  # to the type checker it is frozen: without that this ignore would be of no use, an error
