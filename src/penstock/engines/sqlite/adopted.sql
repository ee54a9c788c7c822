-- Statements on a table of the user's that was adopted.

-- name: data
-- <data> and the like are lists of columns that differ from call to call, quoted by SQLite.
SELECT <data> FROM {table} u WHERE {row_of_side};

-- name: insert_row
INSERT INTO {table} (<names>) VALUES (<marks>);

-- name: change
UPDATE {table} SET <assignments> WHERE {match};

-- name: exists
SELECT 1 FROM {table} WHERE {match};

-- name: read
SELECT {columns} FROM {table} WHERE {match};

-- name: all_keys
SELECT {keys} FROM {table} ORDER BY {keys};

-- name: write
UPDATE {table} SET {assignments} WHERE {match};

-- name: delete
DELETE FROM {table} WHERE {match};

-- name: on_insert
CREATE TRIGGER "penstock_{number}_insert" AFTER INSERT ON {table}
WHEN NOT EXISTS (SELECT 1 FROM {side} WHERE {same_key} AND {same_values})
BEGIN
    INSERT INTO edits (tube, row_id) VALUES ({number}, {new_id});
END;

-- name: on_update
CREATE TRIGGER "penstock_{number}_update" AFTER UPDATE OF {watched} ON {table}
WHEN {moved} OR NOT EXISTS (SELECT 1 FROM {side} WHERE {same_key} AND {same_values})
BEGIN
    INSERT INTO edits (tube, row_id) VALUES ({number}, {old_id});
    INSERT INTO edits (tube, row_id) VALUES ({number}, {new_id});
END;

-- name: on_delete
CREATE TRIGGER "penstock_{number}_delete" AFTER DELETE ON {table}
WHEN EXISTS (SELECT 1 FROM {side} WHERE {old_key})
BEGIN
    INSERT INTO edits (tube, row_id) VALUES ({number}, {old_id});
END;

-- name: drop_on_insert
DROP TRIGGER IF EXISTS "penstock_{number}_insert";

-- name: drop_on_update
DROP TRIGGER IF EXISTS "penstock_{number}_update";

-- name: drop_on_delete
DROP TRIGGER IF EXISTS "penstock_{number}_delete";
