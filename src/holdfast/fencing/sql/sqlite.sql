-- As on PostgreSQL. The write locks the whole file until the caller's transaction ends.

-- name: admit
INSERT INTO {table} (lock_key, fence) VALUES (:key, :fence)
ON CONFLICT (lock_key) DO UPDATE SET fence = max(fence, excluded.fence)
RETURNING fence

-- name: create
CREATE TABLE IF NOT EXISTS {table} (
    lock_key TEXT PRIMARY KEY NOT NULL,
    fence INTEGER NOT NULL
) WITHOUT ROWID

-- name: look
SELECT name, lower(type), pk FROM pragma_table_info(:name)
