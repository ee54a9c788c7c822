create sequence @s.seqs_@n;
create sequence @s.places_@n;
create @unlogged table @s.tasks_@n of @s.task (
    primary key (seq),
    seq with options default nextval('@s.seqs_@n'),
--if lanes
    place with options default currval('@s.seqs_@n'),
--end
    check ((state = 'taken') = (token is not null))
) with (
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 1
);
create index tasks_@n_taken on @s.tasks_@n (session, seq) where state = 'taken';
create index tasks_@n_due on @s.tasks_@n (due_at, due_rank, seq) where due_at is not null;
create index tasks_@n_buried on @s.tasks_@n (pri, seq) where state = 'buried';
create unique index tasks_@n_key on @s.tasks_@n (key) where key is not null and state <> 'done';
create unique index tasks_@n_put_id on @s.tasks_@n (put_id) where put_id is not null;
--if ids
create unique index tasks_@n_id on @s.tasks_@n (id);
--end
--unless lanes
create index tasks_@n_line on @s.tasks_@n (pri, seq) where state = 'ready';
create table @s.marks_@n (
    pri bigint not null,
    seq bigint not null,
    cap bigint not null,
    next_pri bigint,
    next_seq bigint,
    next_xid xid8,
    step bigint not null default 1000  -- a mark is not raised by less
) with (fillfactor = 50);
insert into @s.marks_@n values (-9223372036854775808, -9223372036854775808, @pri);
create table @s.lows_@n (pri bigint not null, seq bigint not null)
    with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index lows_@n_line on @s.lows_@n (pri, seq);
create function @s.low_@n() returns trigger language plpgsql as 'begin return null; end';
create trigger low_back after update on @s.tasks_@n for each row
    when (new.state = 'ready' and (old.state <> 'ready' or old.pri <> new.pri)) execute function @s.low_@n();
create trigger low_put after insert on @s.tasks_@n for each row
    when (new.state = 'ready' and new.pri < @pri) execute function @s.low_@n();
--end
--if lanes
create index tasks_@n_line on @s.tasks_@n (pri, place) where state = 'ready' and lane is null;
create index tasks_@n_lane on @s.tasks_@n (lane, pri, seq) where state = 'ready' and lane is not null;
create index tasks_@n_slots on @s.tasks_@n (lane) where state = 'taken' and lane is not null;
create table @s.lanes_@n (
    lane text primary key,
    concurrency bigint,
    rate double precision,
    burst bigint,
    paused boolean not null default false,
    tat bigint not null default 0
) with (fillfactor = 70);
create @unlogged table @s.tickets_@n (
    pri bigint not null,
    place bigint not null,
    lane text not null,
    at bigint
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 1);
create index tickets_@n_line on @s.tickets_@n (pri, place, lane) where at is null;
create index tickets_@n_at on @s.tickets_@n (at, lane) where at is not null;
create index tickets_@n_lane on @s.tickets_@n (lane);
--end
create @unlogged table @s.counts_@n (
    n bigint not null,
    source text,
    target text,
    event text,
    second text
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
