-- Keys compare byte by byte (SQLite's own BINARY collation), so `a`, `A` and `a ` differ.
-- `version` never repeats, not even after a row was dropped: it is at least the clock.
-- `turn` changes only with writes that may let a waiter in, and is what waiters watch.

-- name: create_meta
CREATE TABLE holdfast_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- With row ids a record of ordinary size fits into one small page beside its key.
-- name: create_locks
CREATE TABLE holdfast_locks (
    key TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    record TEXT NOT NULL
);

-- name: load
SELECT record, version FROM holdfast_locks WHERE key = ?;

-- name: insert
INSERT INTO holdfast_locks (key, version, turn, record) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO NOTHING;

-- name: update
UPDATE holdfast_locks SET version = ?, turn = turn + ?, record = ?
WHERE key = ? AND version = ?;

-- name: delete
DELETE FROM holdfast_locks WHERE key = ? AND version = ?;

-- A cursor is a key, and a damaged one need not be text: both are given as bytes.
-- name: first_page
SELECT key, record, version FROM holdfast_locks WHERE key >= CAST(? AS TEXT)
ORDER BY key LIMIT ?;

-- name: next_page
SELECT key, record, version FROM holdfast_locks WHERE key > CAST(? AS TEXT)
ORDER BY key LIMIT ?;

-- name: turn
SELECT version, turn FROM holdfast_locks WHERE key = ?;

-- name: newest_version
SELECT coalesce(max(version), 0) FROM holdfast_locks;

-- name: get_meta
SELECT value FROM holdfast_meta WHERE name = ?;

-- name: set_meta
INSERT INTO holdfast_meta (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: count_tables
SELECT count(*) FROM sqlite_master;
