-- What both MySQL and MariaDB speak. Every statement is a transaction of its own.
-- A write brings the server's clock in its reply, and from it the new version is known: that is
-- what LAST_INSERT_ID(expression) does, and it leaves nothing behind that is read later.
-- UTC_TIMESTAMP is the time at which the server got the statement, and knows no summer time.
-- Keys compare exactly: a binary collation that does not pad with spaces.
-- Records come in hexadecimal digits, which need no escaping.

-- name: clock
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- name: create
CREATE TABLE IF NOT EXISTS {table} (
    `key` VARCHAR(512) CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL PRIMARY KEY,
    mode VARCHAR(16) NOT NULL,
    owners VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
    fence BIGINT NOT NULL,
    expires_at DATETIME(6) NULL COMMENT 'UTC',
    version BIGINT NOT NULL,
    turn BIGINT NOT NULL,
    record JSON NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = '{mark}'

-- name: grant
GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user}

-- With constants the server need not open every table for what it says of itself.

-- name: look
SELECT
    {schema} AS `schema`,
    (
        SELECT table_name FROM information_schema.tables
        WHERE table_schema = {schema} AND table_name = :name
    ) AS name,
    (
        SELECT table_comment FROM information_schema.tables
        WHERE table_schema = {schema} AND table_name = :name
    ) AS mark,
    (
        SELECT GROUP_CONCAT(column_name) FROM information_schema.columns
        WHERE table_schema = {schema} AND table_name = :name
    ) AS columns,
    CURRENT_USER() AS who,
    DATABASE() AS place,
    0 AS standby,
    VERSION() AS server

-- name: load
SELECT {clock}, here.version, here.record
FROM (SELECT 1) AS always
LEFT JOIN {table} AS here ON here.`key` = :key

-- Whoever waits for the row does so for a second at most (see `connect`).

-- name: hold
START TRANSACTION;
SELECT {clock};
SELECT version, record FROM {table} WHERE `key` = :key FOR UPDATE

-- name: load_many
SELECT here.`key`, {clock}, here.version, here.record
FROM (SELECT 1) AS always
LEFT JOIN {table} AS here ON here.`key` IN ({keys})

-- name: insert
INSERT INTO {table} (`key`, mode, owners, fence, expires_at, version, turn, record)
VALUES (
    :key, :mode, :owners, :fence,
    TIMESTAMP('1970-01-01') + INTERVAL :expires_at MICROSECOND,
    LAST_INSERT_ID({clock}), 0, CONVERT(UNHEX(:record) USING utf8mb4)
)

-- name: update
UPDATE {table} SET
    mode = :mode,
    owners = :owners,
    fence = :fence,
    expires_at = TIMESTAMP('1970-01-01') + INTERVAL :expires_at MICROSECOND,
    version = GREATEST(version + 1, LAST_INSERT_ID({clock})),
    turn = turn + :turn,
    record = CONVERT(UNHEX(:record) USING utf8mb4)
WHERE `key` = :key AND version = :version

-- Joined in this order, rows are locked in the order in which they were named. The reply tells
-- how many were written, and the clock; so each version is known.

-- name: update_many
UPDATE (
{rows}
) AS new
STRAIGHT_JOIN {table} AS here ON here.`key` = new.`key` AND here.version = new.version
SET
    here.mode = new.mode,
    here.owners = new.owners,
    here.fence = new.fence,
    here.expires_at = TIMESTAMP('1970-01-01') + INTERVAL new.expires_at MICROSECOND,
    here.version = GREATEST(here.version + 1, LAST_INSERT_ID({clock})),
    here.record = CONVERT(UNHEX(new.record) USING utf8mb4)

-- name: row
SELECT
    :key{n} AS `key`, :version{n} AS version, :mode{n} AS mode, :owners{n} AS owners,
    :fence{n} AS fence, :expires_at{n} AS expires_at, :record{n} AS record

-- name: delete
DELETE FROM {table} WHERE `key` = :key AND version = :version

-- name: now
SELECT {clock}

-- name: first_page
SELECT `key`, {clock}, version, record
FROM {table} WHERE `key` >= :start ORDER BY `key` LIMIT :most

-- name: next_page
SELECT `key`, {clock}, version, record
FROM {table} WHERE `key` > :start ORDER BY `key` LIMIT :most

-- name: turns
SELECT `key`, version, turn, mode, {clock}, record
FROM {table} WHERE `key` IN ({keys})
