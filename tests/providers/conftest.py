import pytest

pytest.register_assert_rewrite("tests.contracts.model")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    # The loop that the service runs on: cancellation and closing sockets depend on it.
    return "asyncio", {"use_uvloop": True}
