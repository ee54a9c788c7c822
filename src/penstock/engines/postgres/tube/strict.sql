-- Only strict lanes look at delayed and buried tasks, so only they pay for the index.
create index if not exists tasks_@n_stand on @s.tasks_@n (lane, pri, seq)
    where state in ('ready', 'delayed', 'buried') and lane is not null;
