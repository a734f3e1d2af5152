-- One row for each key. `admit` raises the remembered fence to ours, unless it is larger already,
-- and tells what is remembered then. The row stays locked until the caller's transaction ends:
-- that is what orders the transactions of the old and of the new holder.

-- name: admit
INSERT INTO {table} AS gate (lock_key, fence) VALUES (:key, :fence)
ON CONFLICT (lock_key) DO UPDATE SET fence = greatest(gate.fence, excluded.fence)
RETURNING fence

-- name: create
CREATE TABLE IF NOT EXISTS {table} (
    lock_key text COLLATE "C" PRIMARY KEY,
    fence bigint NOT NULL
) WITH (fillfactor = 70)

-- Two that create a table at once would fail; the second one waits here.

-- name: alone
SELECT pg_advisory_xact_lock(hashtext('holdfast_fences'))

-- name: look
SELECT
    part.attname,
    format_type(part.atttypid, NULL),
    EXISTS (
        SELECT 1 FROM pg_index AS found
        WHERE found.indrelid = part.attrelid AND found.indisprimary
            AND found.indkey[0] = part.attnum AND found.indnatts = 1
    )
FROM pg_attribute AS part
WHERE part.attrelid = to_regclass(:name) AND part.attnum > 0 AND NOT part.attisdropped
