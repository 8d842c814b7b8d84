"""Options under the SDK's names: in camelCase or ours, and refused by name where they mean nothing here."""

from collections.abc import Container, Iterable, Mapping

from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


def sdk_names(names: Iterable[str]) -> Mapping[str, str]:
    """Give our names by those in camelCase."""
    return {to_camel(name): name for name in names}


def own_name(key: object, own: Mapping[str, str], taken: Container[str]) -> str:
    """Give our name of an option. Raises for one that was taken, in whatever spelling."""
    name = own.get(str(key), str(key))
    if name in taken:
        raise PydanticCustomError("duplicate_option", "{name} is given twice", {"name": name})
    return name


def unsupported(message: str, option: str | None = None) -> PydanticCustomError:
    """Refuse what this version does not carry out; `option` is its key beside the field in error."""
    context = {"reason": message} if option is None else {"reason": message, "option": option}
    return PydanticCustomError("unsupported_option", "{reason}", context)
