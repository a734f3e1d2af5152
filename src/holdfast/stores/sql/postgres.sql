-- Every statement is a transaction of its own, and brings the server's clock with it.
-- `version` grows with every write of a row and is at least the clock, so that it does not
-- repeat after a row was dropped. `turn` changes only with writes that may let a waiter in.
-- A swap that does not fit returns no row. One that had to wait for another writer finds
-- the row as that one left it.

-- name: clock
CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)

-- name: create
CREATE TABLE IF NOT EXISTS {table} (
    key text COLLATE "C" PRIMARY KEY,
    mode text NOT NULL,
    owners text NOT NULL,
    fence bigint NOT NULL,
    expires_at timestamptz,
    version bigint NOT NULL,
    turn bigint NOT NULL,
    record json NOT NULL
) WITH (fillfactor = 70);
COMMENT ON TABLE {table} IS '{mark}'

-- name: grant
GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user}

-- name: create_at_once
DO $holdfast$ BEGIN
{create};
END $holdfast$

-- name: look
SELECT
    space.nspname AS schema,
    found.relname AS name,
    obj_description(found.oid, 'pg_class') AS mark,
    (
        SELECT string_agg(attname, ',') FROM pg_attribute
        WHERE attrelid = found.oid AND attnum > 0 AND NOT attisdropped
    ) AS columns,
    current_user AS who,
    current_database() AS place,
    pg_is_in_recovery() AS standby,
    '' AS server
FROM (VALUES (to_regclass(:name))) AS asked (oid)
LEFT JOIN pg_class AS found ON found.oid = asked.oid
LEFT JOIN pg_namespace AS space ON space.oid = found.relnamespace

-- name: load
SELECT {clock}, here.version, CAST(here.record AS text)
FROM (VALUES (1)) AS always
LEFT JOIN {table} AS here ON here.key = :key

-- Whoever stops between this and the write keeps the others waiting for two seconds at most.

-- name: hold
BEGIN;
SET LOCAL lock_timeout = '1s';
SET LOCAL idle_in_transaction_session_timeout = '2s';
SELECT {clock};
SELECT version, CAST(record AS text) FROM {table} WHERE key = :key FOR NO KEY UPDATE

-- name: load_many
SELECT here.key, {clock}, here.version, CAST(here.record AS text)
FROM (VALUES (1)) AS always
LEFT JOIN {table} AS here ON here.key IN ({keys})

-- name: insert
INSERT INTO {table} (key, mode, owners, fence, expires_at, version, turn, record)
VALUES (
    :key, :mode, :owners, :fence,
    timestamptz 'epoch' + CAST(:expires_at AS bigint) * interval '1 microsecond',
    {clock}, 0, CAST(:record AS json)
)
ON CONFLICT (key) DO NOTHING
RETURNING version, {clock}, {notify}

-- name: update
UPDATE {table} SET
    mode = :mode,
    owners = :owners,
    fence = :fence,
    expires_at = timestamptz 'epoch' + CAST(:expires_at AS bigint) * interval '1 microsecond',
    version = greatest(version + 1, {clock}),
    turn = turn + :turn,
    record = CAST(:record AS json)
WHERE key = :key AND version = :version
RETURNING version, {clock}, {notify}

-- Rows that somebody keeps locked are left out: many leases must not wait for one row.

-- name: update_many
WITH new (key, version, mode, owners, fence, expires_at, record) AS (
    SELECT * FROM unnest(
        CAST(CAST(:key AS text) AS text[]),
        CAST(CAST(:version AS text) AS bigint[]),
        CAST(CAST(:mode AS text) AS text[]),
        CAST(CAST(:owners AS text) AS text[]),
        CAST(CAST(:fence AS text) AS bigint[]),
        CAST(CAST(:expires_at AS text) AS bigint[]),
        CAST(CAST(:record AS text) AS text[])
    )
), idle AS (
    SELECT here.key FROM new JOIN {table} AS here
    ON here.key = new.key AND here.version = new.version
    FOR NO KEY UPDATE OF here SKIP LOCKED
)
UPDATE {table} AS here SET
    mode = new.mode,
    owners = new.owners,
    fence = new.fence,
    expires_at = timestamptz 'epoch' + new.expires_at * interval '1 microsecond',
    version = greatest(here.version + 1, {clock}),
    record = CAST(new.record AS json)
FROM new JOIN idle ON idle.key = new.key
WHERE here.key = new.key AND here.version = new.version
RETURNING here.key, here.version, {clock}

-- name: delete
DELETE FROM {table} WHERE key = :key AND version = :version
RETURNING version, {clock}, {notify_deleted}

-- name: notify
CASE WHEN :news <> '' THEN pg_notify(:channel, version || ' ' || :news) END

-- name: notify_deleted
CASE WHEN :news <> '' THEN pg_notify(:channel, (version + 1) || ' ' || :news) END

-- name: first_page
SELECT key, {clock}, version, CAST(record AS text)
FROM {table} WHERE key >= :start ORDER BY key LIMIT :most

-- name: next_page
SELECT key, {clock}, version, CAST(record AS text)
FROM {table} WHERE key > :start ORDER BY key LIMIT :most

-- name: turns
SELECT key, version, turn, mode, {clock}, CAST(record AS text)
FROM {table} WHERE key IN ({keys})

-- name: notify_all
SELECT pg_notify(:channel, :payload)
