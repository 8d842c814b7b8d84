from alembic.script import ScriptDirectory

from app.store.migrate import _config
from tests.cli.conftest import Finished, Run


async def test_the_schema_goes_down_and_up_and_says_from_where_to_where(
    bare: Run, database_url: str
) -> None:
    head = ScriptDirectory.from_config(_config()).get_current_head()

    async def migrate(*arguments: str) -> Finished:
        done = await bare("migrate", *arguments, environment={"DATABASE_URL": database_url})
        assert done.status == 0, done.err
        return done

    assert (await migrate()).out == f"The schema is at {head}; nothing to do.\n"
    assert (await migrate("--to", "base")).out == f"The schema went from {head} to nothing.\n"
    assert (await migrate()).out == f"The schema went from nothing to {head}.\n"


async def test_an_unknown_revision_changes_nothing(bare: Run, database_url: str) -> None:
    done = await bare("migrate", "--to", "zzzz", environment={"DATABASE_URL": database_url})
    assert done.status == 2
    assert "zzzz" in done.err
