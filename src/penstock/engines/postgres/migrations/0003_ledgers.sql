-- Ledgers: a number is written once, ever. Names are in the order of their bytes, as on every engine.
create table @s.notes (
    ledger text collate "C" not null,
    number bigint not null,
    note text not null,
    primary key (ledger, number)
);

-- Up to where notes were forgotten: their numbers stay written.
create table @s.trims (
    ledger text collate "C" primary key,
    upto bigint not null
);
