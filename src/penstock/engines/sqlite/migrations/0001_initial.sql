-- One row: what holds for the whole store.
CREATE TABLE penstock_store (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    schema    INTEGER NOT NULL,          -- the last migration that was made
    epoch     INTEGER NOT NULL,          -- rises with every run, synced before the first grant
    token     INTEGER NOT NULL,          -- the last lease token that was handed out, in blocks, to a tube
    registry  INTEGER NOT NULL,          -- rises when a tube is made, altered or dropped
    clean     INTEGER NOT NULL           -- 1 while no process has the store open after an orderly close
);
INSERT INTO penstock_store VALUES (1, 1, 0, 0, 1, 1);

-- Tubes by number: their tables are named by it, so any name is safe and names may differ in case alone.
CREATE TABLE penstock_tubes (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL UNIQUE,
    config    TEXT NOT NULL
);

-- Lanes with settings of their own, or with a rate that is not yet idle. All others need no row.
CREATE TABLE penstock_lanes (
    tube        INTEGER NOT NULL,
    lane        TEXT NOT NULL,
    concurrency INTEGER,
    rate        REAL,
    burst       INTEGER,
    paused      INTEGER,
    tat         INTEGER NOT NULL DEFAULT 0,
    wake_at     INTEGER,
    PRIMARY KEY (tube, lane)
) WITHOUT ROWID;
CREATE INDEX penstock_lanes_wake ON penstock_lanes (tube, wake_at) WHERE wake_at IS NOT NULL;

CREATE TABLE penstock_sessions (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid       TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    ttl        INTEGER NOT NULL,
    direct     INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    attached   INTEGER NOT NULL
);

-- Append-only history of tubes with history=True.
CREATE TABLE penstock_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    tube        TEXT NOT NULL,
    task_id     NOT NULL,
    event       TEXT NOT NULL,
    from_state  TEXT,
    to_state    TEXT NOT NULL,
    reason      TEXT,
    attempt     INTEGER NOT NULL,
    pri         INTEGER NOT NULL,
    lane        TEXT,
    key         TEXT,
    worker      TEXT,
    error_class TEXT,
    error       TEXT,
    ready_at    INTEGER,
    taken_at    INTEGER,
    delay       INTEGER,
    data
);

-- Rows of adopted tables that somebody changed by hand, waiting to be taken into account.
CREATE TABLE penstock_edits (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    tube   INTEGER NOT NULL,
    row_id TEXT NOT NULL                  -- the primary key as a JSON array
);
