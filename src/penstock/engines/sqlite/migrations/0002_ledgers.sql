-- Ledgers: a number is written once, ever.
CREATE TABLE penstock_notes (
    ledger TEXT NOT NULL,
    number INTEGER NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (ledger, number)
) WITHOUT ROWID;

-- Up to where notes were forgotten: their numbers stay written.
CREATE TABLE penstock_trims (
    ledger TEXT NOT NULL PRIMARY KEY,
    upto   INTEGER NOT NULL
) WITHOUT ROWID;
