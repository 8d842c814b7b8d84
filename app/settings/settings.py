"""All configuration, in one place. Built once in `__main__`; everything else receives values.

Each setting is an environment variable `TREADLE_<GROUP>__<NAME>`; a few have a plain name that
people expect (`PLAIN_NAMES`). Values of a group that hold more than one thing are JSON. A variable
that is set to nothing counts as unset.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.settings.groups import (
    AuthSettings,
    DatabaseSettings,
    EgressSettings,
    EngineSettings,
    HookSettings,
    LimitSettings,
    LogSettings,
    McpSettings,
    ModelSettings,
    PolicySettings,
    StreamSettings,
    WorkspaceSettings,
)

PLAIN_NAMES: Mapping[str, tuple[str, str]] = {
    "DATABASE_URL": ("database", "url"),
    "MIGRATE_ON_START": ("database", "migrate_on_start"),
    "ANTHROPIC_API_KEY": ("model", "api_key"),
    "ANTHROPIC_AUTH_TOKEN": ("model", "auth_token"),
    "ANTHROPIC_BASE_URL": ("model", "base_url"),
}
"""Variables without our prefix, and the setting that each fills when `TREADLE_…` does not."""


class _PlainNames(EnvSettingsSource):
    """Reads `DATABASE_URL` and its like."""

    def __call__(self) -> dict[str, Any]:
        found: dict[str, dict[str, str]] = {}
        for name, (group, field) in PLAIN_NAMES.items():
            if value := os.environ.get(name):
                found.setdefault(group, {})[field] = value
        return found


class Settings(BaseSettings):
    """Everything an operator can set."""

    model_config = SettingsConfigDict(
        env_prefix="TREADLE_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    data_dir: Path | None = None
    """Where workspaces and the embedded Postgres lie. Default: the user's data folder, as root
    `/var/lib/treadle`."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """Where commands run. `none` runs them unprotected as the service's user: only for one
    tenant on loopback, only when you mean it."""
    unprotected_beyond_loopback: bool = False
    """Serve without a sandbox on an address that others reach. Something else must keep them out."""
    database: DatabaseSettings = DatabaseSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    policy: PolicySettings = PolicySettings()
    egress: EgressSettings = EgressSettings()
    mcp: McpSettings = McpSettings()
    hooks: HookSettings = HookSettings()
    limits: LimitSettings = LimitSettings()
    stream: StreamSettings = StreamSettings()
    auth: AuthSettings = AuthSettings()
    log: LogSettings = LogSettings()

    @property
    def data_path(self) -> Path:
        """The data directory, absolute."""
        if self.data_dir is not None:
            return self.data_dir.expanduser().absolute()
        if os.geteuid() == 0:
            return Path("/var/lib/treadle")
        return Path(platformdirs.user_data_dir("treadle"))

    @property
    def runtime_path(self) -> Path:
        """Where the embedded Postgres has its socket: short, since socket paths are limited."""
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        tag = hashlib.sha256(str(self.data_path).encode()).hexdigest()[:10]
        return Path(base) / f"treadle-{os.geteuid()}-{tag}"

    @property
    def has_provider(self) -> bool:
        """Whether a model other than the demo one can be asked."""
        return self.model.api_key is not None or self.model.auth_token is not None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the plain names behind ours."""
        del dotenv_settings, file_secret_settings
        return (init_settings, env_settings, _PlainNames(settings_cls))
