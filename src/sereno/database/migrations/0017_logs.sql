-- The central log: what handlers and the engine had to say, kept for a while, so that there is one place to look.

-- Lines are only ever added, and forgotten from the old end along the primary key. `at` is when it was said; a line is
-- written a second later, and ten minutes later at most. `context`: what else was said with it, without secrets.
create table sereno.logs (
    id         bigint generated always as identity primary key,
    at         timestamptz not null,
    level      text not null,
    event      text not null,
    message    text not null,
    tenant     text,
    job_id     bigint,
    task       text,
    queue      text,
    trace_id   text,
    session    bigint,
    context    jsonb not null default '{}',
    traceback  text
);

create index logs_at on sereno.logs (at);
create index logs_event on sereno.logs (event, id);
create index logs_tenant on sereno.logs (tenant, id) where tenant is not null;
create index logs_job on sereno.logs (job_id, id) where job_id is not null;
create index logs_trace on sereno.logs (trace_id, id) where trace_id is not null;
