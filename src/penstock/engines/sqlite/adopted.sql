-- Statements on a table of the user's that was adopted. Names of tables and columns are quoted by SQLite.

-- name: quote
SELECT printf('"%w"', ?);

-- name: id
-- A composite key as the side table has it.
SELECT json_array({key_marks});

-- name: find_table
SELECT name, type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE;

-- name: columns
SELECT name, type, "notnull", pk FROM pragma_table_info(?);

-- name: count_triggers
SELECT count(*) FROM sqlite_schema
WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE
    AND name IN (printf('penstock_%d_insert', ?2), printf('penstock_%d_update', ?2), printf('penstock_%d_delete', ?2));

-- name: data
SELECT {data} FROM {table} u WHERE {row_of_side}

-- name: insert_row
INSERT INTO {table} ({names}) VALUES ({marks});

-- name: change
UPDATE {table} SET {changes} WHERE {match};

-- name: exists
SELECT 1 FROM {table} WHERE {match};

-- name: highest
SELECT max({first_key}) FROM {table};

-- name: read
SELECT {columns} FROM {table} WHERE {match};

-- name: read_all
SELECT {keys}, {columns} FROM {table} ORDER BY {keys};

-- name: write
-- Only what is not there yet: NULL and 0, or NULL and '', say the same.
UPDATE {table} SET {assignments} WHERE {match_named};

-- name: delete
DELETE FROM {table} WHERE {match};

-- name: delete_all
DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {side} WHERE {side_of_row});

-- name: own_edits
SELECT seq, row_id FROM penstock_edits WHERE tube = {number} ORDER BY seq;

-- name: forget_edits
DELETE FROM penstock_edits WHERE tube = {number} AND seq <= ?;

-- name: on_insert
CREATE TRIGGER "penstock_{number}_insert" AFTER INSERT ON {table}
WHEN {new_key_counts} AND NOT EXISTS (SELECT 1 FROM {side} WHERE {same_key} AND {same_values})
BEGIN
    INSERT INTO penstock_edits (tube, row_id) VALUES ({number}, {new_id});
END;

-- name: on_update
CREATE TRIGGER "penstock_{number}_update" AFTER UPDATE OF {watched} ON {table}
WHEN {moved} OR NOT EXISTS (SELECT 1 FROM {side} WHERE {same_key} AND {same_values})
BEGIN
    INSERT INTO penstock_edits (tube, row_id) SELECT {number}, {old_id} WHERE ({moved}) AND {old_key_counts};
    INSERT INTO penstock_edits (tube, row_id) SELECT {number}, {new_id} WHERE {new_key_counts};
END;

-- name: on_delete
CREATE TRIGGER "penstock_{number}_delete" AFTER DELETE ON {table}
WHEN {old_key_counts} AND EXISTS (SELECT 1 FROM {side} WHERE {old_key})
BEGIN
    INSERT INTO penstock_edits (tube, row_id) VALUES ({number}, {old_id});
END;

-- name: drop_on_insert
DROP TRIGGER IF EXISTS "penstock_{number}_insert";

-- name: drop_on_update
DROP TRIGGER IF EXISTS "penstock_{number}_update";

-- name: drop_on_delete
DROP TRIGGER IF EXISTS "penstock_{number}_delete";
