-- Rules that say who is told when something needs a person, and what was told.

-- `kinds`: of what needs a person; null for all. `log`: over lines of the log instead: level, event, count, within.
-- `targets`: channel, address and its keys; an address may be a secret, and is shown nowhere. `log_read`, `log_reached`: up to
-- where lines were read the time before, and the last time; `hits`: id and time of the newest that count.
create table sereno.alert_rules (
    name           text primary key,
    kinds          text[],
    log            jsonb,
    targets        jsonb not null check (jsonb_typeof(targets) = 'array'),
    level          text not null default 'warn' check (level in ('warn', 'bad')),
    tenant         text,
    queue          text,
    task           text,
    for_seconds    double precision not null default 0 check (for_seconds >= 0),
    again_seconds  double precision not null default 14400 check (again_seconds > 0),
    enabled        boolean not null default true,
    note           text,
    created_at     timestamptz not null default sereno.now(),
    changed_at     timestamptz not null default sereno.now(),
    changed_by     text not null,
    log_read       bigint,
    log_reached    bigint,
    hits           jsonb not null default '[]',
    error          text,
    error_at       timestamptz
) with (fillfactor = 70);

-- What a rule has found: open until it is over. `told_at`: null while it has not lasted long enough. `times`: so often it was
-- told. `openings`: so often it came back within the hour; it has to stay away for longer each time. `sent`: jobs whose message
-- the scheduler has sent itself, because no worker was alive.
create table sereno.alerts (
    id                bigint generated always as identity primary key,
    rule              text not null,
    kind              text not null,
    subject           text not null,
    level             text not null check (level in ('warn', 'bad')),
    said              text not null,
    details           jsonb not null,
    words             text not null,
    remedy            text not null,
    opened_at         timestamptz not null default sereno.now(),
    last_seen_at      timestamptz not null default sereno.now(),
    told_at           timestamptz,
    times             integer not null default 0,
    openings          integer not null default 1,
    resolved_at       timestamptz,
    resolved_told_at  timestamptz,
    silenced_until    timestamptz,
    silenced_by       text,
    sent              bigint[] not null default '{}'
) with (fillfactor = 70);

create unique index alerts_open on sereno.alerts (rule, kind, subject) where resolved_at is null;
create index alerts_resolved on sereno.alerts (resolved_at) where resolved_at is not null;

-- What died lately, without reading all that ever died.
create index history_dead_finished on sereno.history_dead (finished_at);
