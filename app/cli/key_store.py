"""What `treadle keys` and `treadle policy` do in the database."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import get_args

from app.domain.ceiling import Ceiling
from app.domain.permissions import PermissionMode
from app.errors import ConfigError
from app.hooks.signing import tenant_secret
from app.permissions.rules import MalformedRule, parse_rule
from app.settings.loading import load_settings
from app.store.keys import (
    DEFAULT_TENANT,
    ApiKey,
    ceiling_of,
    create_key,
    list_keys,
    revoke_key,
    set_ceiling,
)
from app.wiring.database import open_store


def create(name: str) -> tuple[str, str, str]:
    """Make a key; give its id, the key itself and its tenant."""

    async def work() -> tuple[str, str]:
        async with open_store(load_settings()) as database, database.begin() as connection:
            return await create_key(connection, DEFAULT_TENANT, name)

    return *asyncio.run(work()), DEFAULT_TENANT


def all_keys() -> list[ApiKey]:
    """Give the keys, oldest first."""

    async def work() -> list[ApiKey]:
        async with open_store(load_settings()) as database:
            return await list_keys(database, DEFAULT_TENANT)

    return asyncio.run(work())


def hook_secret() -> str:
    """Give the default tenant's signing secret. Raises `ConfigError`."""
    secret = load_settings().hooks.secret
    if secret is None:
        raise ConfigError(
            "TREADLE_HOOKS__SECRET is not set: set it to at least 32 random characters, the same on "
            "every host, and start the hosts again."
        )
    return tenant_secret(secret.get_secret_value(), DEFAULT_TENANT)


def revoke(key_id: str) -> bool:
    """Take a key back; False when there is none of this id."""

    async def work() -> bool:
        async with open_store(load_settings()) as database, database.begin() as connection:
            return await revoke_key(connection, DEFAULT_TENANT, key_id)

    return asyncio.run(work())


def policy() -> Mapping[str, Sequence[str]]:
    """Give the policy in its stored form."""

    async def work() -> Ceiling:
        async with open_store(load_settings()) as database, database.begin() as connection:
            return await ceiling_of(connection, DEFAULT_TENANT)

    return asyncio.run(work()).to_json()


def set_policy(deny: Sequence[str], ask: Sequence[str], modes: Sequence[str]) -> str | None:
    """Set the policy. Gives what is wrong with it, if anything; then nothing was set."""
    for mode in modes:
        if mode not in get_args(PermissionMode):
            return f"{mode} is no permission mode: {', '.join(get_args(PermissionMode))}."
    for rule in (*deny, *ask):
        try:
            parse_rule(rule)
        except MalformedRule as error:
            return f"{rule!r} is no rule: {error}."
    ceiling = Ceiling(frozenset(modes), tuple(deny), tuple(ask))

    async def work() -> None:
        async with open_store(load_settings()) as database, database.begin() as connection:
            await set_ceiling(connection, DEFAULT_TENANT, ceiling)

    asyncio.run(work())
    return None
