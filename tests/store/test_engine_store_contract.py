"""The contract of the engine's store: the real one and its twin keep it, and agree beyond it."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.engine_seam import Pen
from tests.contracts.engine_store import EngineStoreContract
from tests.contracts.engine_walk import Walk
from tests.fakes.memory_store import MemoryStore
from tests.store.real_store import real_store
from tests.store.seeds import dice


class TestRealStore(EngineStoreContract):
    @pytest.fixture
    async def pen(self, database_url: str) -> AsyncIterator[Pen]:
        async with real_store(database_url) as store:
            yield Pen(store)


class TestMemoryStore(EngineStoreContract):
    @pytest.fixture
    def pen(self) -> Pen:
        return Pen(MemoryStore())


@pytest.mark.parametrize("seed", range(6))
async def test_both_stores_give_the_same_answers_on_a_random_walk(
    database_url: str, seed: int
) -> None:
    async with real_store(database_url) as store:
        real, twin = Walk(store, dice(seed)), Walk(MemoryStore(), dice(seed))
        await twin.go(150)
        await real.go(150)
        for step, (ours, theirs) in enumerate(zip(twin.seen, real.seen, strict=True)):
            assert ours == theirs, f"seed {seed}, step {step}"
