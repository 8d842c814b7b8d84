"""The real clock's ids."""

from uuid import RFC_4122, UUID

from app.runs.clock import SystemClock


def test_ids_are_random_uuids_as_others_write_them() -> None:
    clock = SystemClock()
    written = [clock.uuid() for _ in range(200)]
    read = [UUID(text) for text in written]
    assert [str(each) for each in read] == written
    assert {(each.version, each.variant) for each in read} == {(4, RFC_4122)}
    assert len(set(read)) == len(read)
    # Every other bit is free.
    assert len({each.time_low >> 31 for each in read}) == len({each.node & 1 for each in read}) == 2
