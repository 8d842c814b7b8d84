from tests.sandbox.conftest import rooms as rooms
