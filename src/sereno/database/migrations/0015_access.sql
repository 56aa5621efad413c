-- Who may look in and change things through the server, and what was asked for twice.

-- `hash`: of the token, which is shown once and kept nowhere. `tenant`: whose things it opens; null for all.
create table sereno.tokens (
    id          bigint generated always as identity primary key,
    name        text not null,
    hash        bytea not null unique,
    role        text not null check (role in ('viewer', 'operator', 'admin')),
    tenant      text,
    created_at  timestamptz not null default sereno.now(),
    created_by  text not null,
    expires_at  timestamptz,
    revoked_at  timestamptz,
    used_at     timestamptz
);
-- Unique within a tenant: whether a name is taken elsewhere is nobody's business.
create unique index tokens_name on sereno.tokens (tenant, name) nulls not distinct where revoked_at is null;

-- Sign-ins that somebody ended before their time: their cookies are refused. Kept for as long as the cookie would be valid.
create table sereno.sign_outs (
    sign_in     text primary key check (length(sign_in) <= 100),
    ends_at     timestamptz not null
);

-- The answer to a request that carried an Idempotency-Key, for whoever asks again. No status yet: it is being answered.
create table sereno.answers (
    who         text not null,
    key         text not null,
    request     bytea not null,
    status      integer,
    body        bytea,
    at          timestamptz not null default sereno.now(),
    primary key (who, key)
);
create index answers_at on sereno.answers (at);

-- Tasks as the code of each service declares them. `tenants`: whether a token of one tenant may have it run.
create table sereno.tasks (
    name        text not null,
    service     text not null,
    tenants     boolean not null,
    declared_at timestamptz not null default sereno.now(),
    primary key (name, service)
);

-- Who did what, from the newest on, of one thing.
create index audit_subject on sereno.audit (subject, id desc);
