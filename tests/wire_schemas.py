"""Which schemas of the OpenAPI document a message or a preview fits."""

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from app.main import openapi_document

VALIDATOR: Any = importlib.import_module("jsonschema").Draft202012Validator  # it has no stubs


@cache
def _validators() -> Mapping[str, Any]:
    document = openapi_document()
    components = {"components": document["components"]}
    stream = document["paths"]["/v1/runs/{run_id}/stream"]["get"]["responses"]["200"]
    *previews, _ = stream["content"]["text/event-stream"]["x-sse-events"]["preview"]["oneOf"]
    options = [*document["components"]["schemas"]["SdkMessage"]["oneOf"], *previews]
    return {
        option.get("$ref", str(option)).rpartition("/")[2]: VALIDATOR({**option, **components})
        for option in options
    }


def schemas_of(message: object) -> list[str]:
    """Give the names of all that it fits; a client can read it if that is one."""
    return [name for name, validator in _validators().items() if validator.is_valid(message)]
