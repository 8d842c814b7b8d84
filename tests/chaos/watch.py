"""Witnesses in the database: triggers that write down who owned a session and who wrote each row.

Every host names itself in `application_name`, so the witness does not depend on what a host
believes. Entries of one session are in commit order: they are made under its row lock.
"""

import asyncpg

SQL = """
CREATE TABLE chaos_log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid bigint NOT NULL DEFAULT txid_current(),
  host text NOT NULL DEFAULT current_setting('application_name'),
  kind text NOT NULL,
  session_id text NOT NULL,
  run_id text, seq bigint, type text,
  owner text, old_owner text, epoch bigint, old_epoch bigint, expired_s float
);
CREATE FUNCTION chaos_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO chaos_log (kind, session_id, owner, old_owner, epoch, old_epoch, expired_s)
  VALUES ('owner', NEW.id, NEW.owner, OLD.owner, NEW.epoch, coalesce(OLD.epoch, 0),
    extract(epoch FROM clock_timestamp() - OLD.lease_expires_at));
  RETURN NULL; END $$;
CREATE FUNCTION chaos_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO chaos_log (kind, session_id, run_id, seq, type)
  VALUES ('row', NEW.session_id, NEW.run_id, NEW.seq, NEW.type);
  RETURN NULL; END $$;
CREATE TRIGGER chaos_owner AFTER UPDATE ON sessions FOR EACH ROW
  WHEN (OLD.owner IS DISTINCT FROM NEW.owner OR OLD.epoch <> NEW.epoch)
  EXECUTE FUNCTION chaos_owner();
CREATE TRIGGER chaos_born AFTER INSERT ON sessions FOR EACH ROW
  WHEN (NEW.owner IS NOT NULL) EXECUTE FUNCTION chaos_owner();
CREATE TRIGGER chaos_row AFTER INSERT ON journal FOR EACH ROW
  WHEN (NEW.run_id IS NOT NULL) EXECUTE FUNCTION chaos_row();
"""


async def watch(dsn: str) -> None:
    """Put the witnesses in place. The schema must be there."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(SQL)
    finally:
        await connection.close()
