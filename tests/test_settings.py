"""Settings: one environment variable each, and a message that names the one that is wrong."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.settings.loading import load_settings, unknown_variables
from app.settings.settings import PLAIN_NAMES, Settings
from app.wiring.rules import open_guard


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the process; the session's fixture has taken away all of ours."""
    usual = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
        os.environ.update(usual)


def loaded(**values: str) -> Settings:
    with environment(values):
        return load_settings()


def refused(**values: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(**values)
    return str(caught.value)


def test_every_setting_has_a_variable() -> None:
    settings = loaded(
        TREADLE_DATA_DIR="/data",
        TREADLE_SANDBOX="none",
        TREADLE_DATABASE__URL="postgresql://db/x",
        TREADLE_ENGINE__LEASE_S="60",
        TREADLE_MODEL__ALIASES='{"fast": "m-1"}',
        TREADLE_MODEL__PRICES='{"m-1": {"input": "1", "output": 2.5}}',
        TREADLE_WORKSPACE__ALLOWED_ROOTS='["/a", "/b"]',
        TREADLE_EGRESS__ALLOWED_HOSTS="[]",
        TREADLE_EGRESS__PRIVATE_HOSTS='["mcp.internal:8000"]',
        TREADLE_POLICY__ALLOW_BYPASS="true",
        TREADLE_LIMITS__CEILING_MAX_BUDGET_USD="12.50",
        TREADLE_AUTH__BOOTSTRAP_KEY="k" * 32,
    )
    assert settings.data_path == Path("/data")
    assert settings.sandbox == "none"
    assert settings.engine.lease_s == 60
    assert settings.model.aliases == {"fast": "m-1"}
    assert settings.model.prices == {"m-1": {"input": Decimal(1), "output": Decimal("2.5")}}
    assert settings.workspace.allowed_roots == [Path("/a"), Path("/b")]
    assert settings.egress.allowed_hosts == [], "an empty list is one"
    assert Settings().egress.allowed_hosts is None
    assert settings.egress.private_hosts == ["mcp.internal:8000"]
    assert settings.policy.allow_bypass is True
    assert settings.limits.ceiling_max_budget_usd == Decimal("12.50")


def test_a_group_can_be_one_json_object_and_single_variables_lie_over_it() -> None:
    settings = loaded(TREADLE_ENGINE='{"lease_s": 40, "drain_s": 3}', TREADLE_ENGINE__DRAIN_S="4")
    assert (settings.engine.lease_s, settings.engine.drain_s) == (40, 4)


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_plain_names_fill_what_ours_leave_open(name: str) -> None:
    group, field = PLAIN_NAMES[name]
    values = {"MIGRATE_ON_START": ("0", "1"), "ANTHROPIC_BASE_URL": ("http://a", "http://b")}
    plain, ours = values.get(name, ("one", "two"))

    def value(settings: Settings) -> str:
        found = getattr(getattr(settings, group), field)
        found = found.get_secret_value() if hasattr(found, "get_secret_value") else found
        return str(int(found)) if isinstance(found, bool) else str(found)

    assert value(loaded(**{name: plain})) == plain
    both = loaded(**{name: plain, f"TREADLE_{group}__{field}".upper(): ours})
    assert value(both) == ours


def test_a_variable_that_is_set_to_nothing_is_not_set() -> None:
    empty = dict.fromkeys(
        [
            *PLAIN_NAMES,
            "TREADLE_DATA_DIR",
            "TREADLE_SANDBOX",
            "TREADLE_DATABASE__URL",
            "TREADLE_MODEL__API_KEY",
            "TREADLE_AUTH__BOOTSTRAP_KEY",
            "TREADLE_WORKSPACE__ALLOWED_ROOTS",
            "TREADLE_ENGINE__LEASE_S",
        ],
        "",
    )
    assert loaded(**empty) == Settings()
    assert loaded(**empty).has_provider is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TREADLE_ENGINE__MAX_RUNS", "many"),
        ("TREADLE_ENGINE__MAX_RUNS", "0"),
        ("TREADLE_ENGINE__MAX_RUNS", "1.5"),
        ("TREADLE_ENGINE__LEASE_S", "-1"),
        ("TREADLE_ENGINE__LEASE_SECONDS", "30"),
        ("TREADLE_ENGINE", "5"),
        ("TREADLE_ENGINE", "fast"),
        ("TREADLE_SANDBOX", "docker"),
        ("TREADLE_LOG__LEVEL", "loud"),
        ("TREADLE_STREAM__HEARTBEAT_S", "26"),
        ("TREADLE_LIMITS__DEFAULT_MAX_BUDGET_USD", "free"),
        ("TREADLE_POLICY__ALLOW_BYPASS", "perhaps"),
        ("TREADLE_WORKSPACE__ALLOWED_ROOTS", "/srv"),
        ("TREADLE_WORKSPACE__ALLOWED_ROOTS", "[/srv]"),
        ("TREADLE_WORKSPACE__ALLOWED_ROOTS", '{"a": 1}'),
        ("TREADLE_EGRESS__ALLOWED_HOSTS", "a.test"),
        ("TREADLE_EGRESS__PORTS", "[0]"),
        ("TREADLE_EGRESS__CA_FILE", "/nowhere/ca.pem"),
        ("TREADLE_MODEL__ALIASES", "fast=m-1"),
        ("TREADLE_MODEL__PRICES", '{"m": {"input": "dear"}}'),
        ("TREADLE_AUTH__BOOTSTRAP_KEY", "k" * 31),
        ("ANTHROPIC_BASE_URL", "api.example"),
        ("MIGRATE_ON_START", "sometimes"),
    ],
)
def test_what_is_wrong_is_named_by_its_variable(name: str, value: str) -> None:
    assert name in refused(**{name: value})


def test_every_wrong_variable_is_named_at_once() -> None:
    said = refused(TREADLE_ENGINE__MAX_RUNS="x", TREADLE_SANDBOX="y", TREADLE_LOG__LEVEL="z")
    for name in ("TREADLE_ENGINE__MAX_RUNS", "TREADLE_SANDBOX", "TREADLE_LOG__LEVEL"):
        assert name in said


def test_secrets_are_in_no_message_and_no_print() -> None:
    said = refused(TREADLE_AUTH__BOOTSTRAP_KEY="hush-hush", TREADLE_ENGINE__MAX_RUNS="x")
    assert "hush-hush" not in said
    settings = loaded(
        TREADLE_AUTH__BOOTSTRAP_KEY="hush" * 8,
        ANTHROPIC_API_KEY="sk-hush",
        ANTHROPIC_AUTH_TOKEN="hush-token",
        DATABASE_URL="postgresql://u:hush@db/x",
    )
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(("lease_s", "heartbeat_s"), [("5", "3"), ("1", "1"), ("9.9", "5")])
def test_a_lease_must_outlast_a_missed_heartbeat(lease_s: str, heartbeat_s: str) -> None:
    said = refused(TREADLE_ENGINE__LEASE_S=lease_s, TREADLE_ENGINE__HEARTBEAT_S=heartbeat_s)
    assert "TREADLE_ENGINE__LEASE_S" in said
    assert "TREADLE_ENGINE__HEARTBEAT_S" in said


def test_the_runtime_folder_differs_by_data_directory_and_is_short() -> None:
    paths = {loaded(TREADLE_DATA_DIR=name).runtime_path for name in ("/a", "/b", "/" + "c" * 200)}
    assert len(paths) == 3
    assert all(len(str(path / ".s.PGSQL.5432")) < 100 for path in paths)


def test_the_home_folder_may_be_named_by_its_tilde() -> None:
    with environment({"HOME": "/home/me"}):
        assert loaded(TREADLE_DATA_DIR="~/treadle").data_path == Path("/home/me/treadle")


def test_a_file_of_certificates_that_holds_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    settings = loaded(TREADLE_EGRESS__CA_FILE=str(path))
    with pytest.raises(ConfigError, match="TREADLE_EGRESS__CA_FILE"):
        open_guard(settings.egress)


def test_a_secret_that_is_too_short_is_told_in_characters() -> None:
    said = refused(TREADLE_AUTH__BOOTSTRAP_KEY="short")
    assert "TREADLE_AUTH__BOOTSTRAP_KEY: at least 32 characters are needed" in said


def test_variables_that_set_nothing_are_found_with_what_they_may_mean() -> None:
    values = {
        "TREADLE_POLICY__FORBIDEN_MODES": "[]",
        "TREADLE_ENGINE_LEASE_S": "9",
        "TREADLE_ZZZ": "1",
        "TREADLE_URL": "http://x",
        "TREADLE_KEY": "k",
        "TREADLE_DATA_DIR": "/x",
        "treadle_engine__lease_s": "9",
        "TREADLE_MODEL__ALIASES": "{}",
        "TREADLE_MODEL__ALIASES__fast": "x",
        "TREADLE_ENGINE": "{}",
        "OTHER_ENGINE": "x",
    }
    with environment(values):
        found = dict(unknown_variables())
    assert found == {
        "TREADLE_POLICY__FORBIDEN_MODES": "TREADLE_POLICY__FORBIDDEN_MODES",
        "TREADLE_ENGINE_LEASE_S": "TREADLE_ENGINE__LEASE_S",
        "TREADLE_ZZZ": None,
    }
