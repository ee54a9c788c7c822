create table @s.store (
    one boolean primary key default true check (one),
    version integer not null,
    epoch bigint not null default 0,
    event_base bigint not null default 0,
    -- Which functions are here: a fingerprint of their text, the release they came with, their names.
    code text not null default '',
    release text not null default '0',
    functions text[] not null default '{}',
    made_at timestamptz not null default clock_timestamp()
);
insert into @s.store (version) values (0);

-- Emptied by a crash, a promotion and a restore: that is how the beginning of a run is noticed.
create unlogged table @s.marker (
    one boolean primary key default true check (one),
    home text not null,
    began_at bigint not null,
    swept_at bigint not null default 0
);

create sequence @s.tokens;

create table @s.tubes (
    number integer generated always as identity primary key,
    name text not null unique,
    version bigint not null default 1,
    config jsonb not null,
    kind text not null,
    features boolean[] not null,
    temporary boolean not null,
    paused boolean not null,
    ttl bigint,
    ttl_derived boolean not null,
    ttr bigint,
    ttr_is_ttl boolean not null,
    shared_lane boolean not null,
    pri bigint not null,
    capacity bigint,
    max_attempts bigint,
    retry jsonb,
    keep bigint not null,
    keep_failed bigint,
    concurrency bigint,
    lane_concurrency bigint,
    lane_rate double precision,
    lane_burst bigint not null,
    lane_order text not null,
    lane_pick text not null,
    payload text not null,
    max_payload bigint not null,
    history boolean not null,
    history_data boolean not null,
    id text not null,
    lanes_changed boolean not null default false
);

create table @s.sessions (
    number bigint generated always as identity primary key,
    uuid uuid not null unique,
    name text not null,
    ttl bigint not null,
    direct boolean not null,
    expires_at bigint not null,
    attached integer not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);
create index on @s.sessions (expires_at);

-- Who waits for what, so that nobody is notified when nobody listens.
create unlogged table @s.waits (
    tube integer not null,
    process uuid not null,
    takes boolean not null,
    ends boolean not null,
    until timestamptz not null,
    primary key (tube, process)
) with (fillfactor = 50);

-- seq is (xid, number within the transaction): the order in which transactions began to write, and once no
-- older one is open nothing can come before what was read.
create table @s.events (
    seq bigint primary key,
    at bigint not null,
    tube text not null,
    task_id text not null,
    event text not null,
    from_state text,
    to_state text not null,
    reason text,
    attempt bigint not null,
    pri bigint not null,
    lane text,
    key text,
    worker text,
    error_class text,
    error text,
    ready_at bigint,
    taken_at bigint,
    delay bigint,
    data text,
    body bytea
);
create index on @s.events (tube, seq);

-- Domains rather than checks of every table: those are read and planned anew by every statement.
create domain @s.state as text check (value in (@states));
create domain @s.reason as text check (value in (@reasons));

create type @s.task as (
    seq bigint,
    id text,
    state @s.state,
    reason @s.reason,
    data json,
    body bytea,
    pri bigint,
    lane text,
    key text,
    put_id text,
    attempt bigint,
    failures bigint,
    max_attempts bigint,
    ttl bigint,
    ttr bigint,
    created_at bigint,
    ready_at bigint,
    expires_at bigint,
    taken_at bigint,
    deadline bigint,
    done_at bigint,
    purge_at bigint,
    session bigint,
    token bigint,
    repeat bigint,
    keep bigint,
    cancel_asked boolean,
    watched_until bigint,
    result text,
    error text,
    errors text,
    due_at bigint,
    due_rank smallint,
    place bigint
);

create type @s.step as (event text, at bigint, error text, after @s.task);

-- What verbs answer, a row each: kind 'step' (an event, for change callbacks), 'task' (the answer),
-- 'error' (info says which) or 'value' (a number in at).
create type @s.answer as (
    kind text,
    tube integer,
    item integer,
    info text,
    at bigint,
    seq bigint,
    id text,
    state text,
    reason text,
    data text,
    body bytea,
    pri bigint,
    lane text,
    key text,
    put_id text,
    attempt bigint,
    failures bigint,
    max_attempts bigint,
    ttl bigint,
    ttr bigint,
    created_at bigint,
    ready_at bigint,
    expires_at bigint,
    taken_at bigint,
    deadline bigint,
    done_at bigint,
    purge_at bigint,
    session bigint,
    token bigint,
    repeat bigint,
    keep bigint,
    cancel_asked boolean,
    watched_until bigint,
    result text,
    error text,
    errors text
);

-- A task as the functions of api.sql show it: seconds and dates, and never the session that holds it.
create type @s.shown_task as (
    tube text,
    id text,
    state text,
    reason text,
    code smallint,
    data json,
    body bytea,
    pri bigint,
    lane text,
    key text,
    attempt bigint,
    max_attempts bigint,
    ttl double precision,
    ttr double precision,
    created_at timestamptz,
    ready_at timestamptz,
    expires_at timestamptz,
    deadline timestamptz,
    done_at timestamptz,
    purge_at timestamptz,
    error text,
    errors json,
    result json,
    cancel_asked boolean,
    token bigint,
    outcome text
);
