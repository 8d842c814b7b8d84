"""What handlers depend on."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.api import routes


def _with_all_below(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _with_all_below(each)


def test_no_request_waits_for_a_thread() -> None:
    """The framework calls what is not async in a thread: two switches a request, for nothing."""
    modules = [
        import_module(f"{routes.__name__}.{m.name}") for m in pkgutil.iter_modules(routes.__path__)
    ]
    calls = {
        each.call
        for module in modules
        for route in module.router.routes
        if isinstance(route, APIRoute)
        for each in _with_all_below(route.dependant)
    }
    assert len(calls) > len(modules)
    for call in calls:
        is_function = inspect.isfunction(call)
        assert inspect.iscoroutinefunction(call if is_function else type(call).__call__), call
