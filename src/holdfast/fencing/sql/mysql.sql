-- What both MySQL and MariaDB speak. The reply to `admit` brings what is remembered, as the
-- statement's insert id: that is what LAST_INSERT_ID(expression) does.
-- Keys compare exactly: a binary collation that does not pad with spaces.

-- name: admit
INSERT INTO {table} (lock_key, fence) VALUES (:key, LAST_INSERT_ID(:fence))
ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, :fence))

-- name: create
CREATE TABLE IF NOT EXISTS {table} (
    lock_key VARCHAR(512) CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC

-- name: server
SELECT VERSION()

-- name: look
SELECT column_name, data_type, column_key = 'PRI'
FROM information_schema.columns
WHERE table_schema = {schema} AND table_name = :name
