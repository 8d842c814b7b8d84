"""What tables have in common: the metadata, and kinds of columns."""

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Numeric, func, text
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

MONEY = Numeric(18, 9)
_NOW = func.clock_timestamp()


def time_column(name: str, *, nullable: bool = True, default_now: bool = False) -> Column[object]:
    """A time with its zone; by default null, or now by the database's clock."""
    server_default = _NOW if default_now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=server_default)


def json_column(name: str, default: str | None = None) -> Column[object]:
    """JSON; `default` is its text. Null may stand where there is none."""
    server_default = text(f"'{default}'::jsonb") if default else None
    return Column(name, JSONB, nullable=default is None, server_default=server_default)


def count_column(name: str) -> Column[int]:
    """A number of things, from nought."""
    return Column(name, BigInteger, nullable=False, server_default=text("0"))
