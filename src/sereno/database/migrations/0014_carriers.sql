-- Queues that are carried outside of PostgreSQL: jobs on their way there, and jobs that came back.

-- Ids of jobs that were published without being stored here first; a process takes a block of a million at once. They
-- begin far above those of `jobs`, and stay below 2^53, which every JSON parser reads exactly.
create sequence sereno.direct_ids as bigint start 1000000000000000 increment 1000000 maxvalue 9007000000000000;

-- The share of the new jobs of a queue that its carrier gets, in per cent; 100 for a queue without a row.
create table sereno.carried_queues (
    queue       text primary key,
    share       smallint not null check (share between 0 and 100),
    changed_at  timestamptz not null default sereno.now()
);

-- Messages that a worker is publishing. Its jobs are no longer in `jobs`; the row is deleted when the carrier has
-- stored the message. If the worker dies, another one publishes the same message with the same id.
create table sereno.relay_batches (
    id          bigint generated always as identity primary key,
    queue       text not null,
    session_id  bigint not null,
    jobs        integer not null check (jobs > 0),
    body        text not null,
    created_at  timestamptz not null default sereno.now()
);

-- Messages that a worker has published more than once: the carrier may have stored their jobs twice, the last time at
-- `position`. Until that one is acknowledged, no row of the queue in `carried_jobs` is deleted.
create table sereno.repeated_messages (
    queue     text not null,
    position  bigint not null,
    primary key (queue, position)
);

-- Jobs of a carrier that are, or were, stored here: a message that is delivered again does not run them again.
-- `position`: of the message in its queue. The row is deleted some minutes after it was stored, when every message up to
-- there was acknowledged: a worker that was suspended may still run the same jobs until it notices.
create table sereno.carried_jobs (
    job_id      bigint primary key,
    queue       text not null,
    position    bigint not null,
    session_id  bigint not null,
    stored_at   timestamptz not null default sereno.now()
);

create index carried_jobs_stored on sereno.carried_jobs (queue, stored_at);

-- What workers last reported of each carried queue: one row for each, written every few seconds.
-- `reported_at`: when a worker last tried; `reached_at`: when the carrier last answered one. The figures are of then.
create table sereno.carrier_states (
    queue                 text primary key,
    kind                  text not null,
    address               text not null,
    direct                boolean not null,
    reported_at           timestamptz not null,
    reached_at            timestamptz,
    error                 text,
    pending_messages      bigint not null default 0,
    held_messages         bigint not null default 0,
    redelivered_messages  bigint not null default 0,
    pending_jobs          bigint not null default 0,
    oldest_at             timestamptz,
    bytes                 bigint not null default 0,
    max_bytes             bigint,
    replicas              integer not null default 1,
    current_replicas      integer not null default 1,
    leader                text
);
