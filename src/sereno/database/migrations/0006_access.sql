-- Access: API tokens, sign-outs, idempotent requests, and the masking of what the server shows.

-- API tokens. `hash`: of the token, which is shown once and stored nowhere. `tenant`: the tenant whose data the token
-- gives access to; null for all.
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

-- Unique within a tenant only, so that a tenant cannot find out names of another.
create unique index tokens_name on sereno.tokens (tenant, name) nulls not distinct where revoked_at is null;

-- Sign-ins that were ended before they expired: their cookies are refused. Retained until the cookie would expire.
create table sereno.sign_outs (
    sign_in     text primary key check (length(sign_in) <= 100),
    ends_at     timestamptz not null
);

-- Stored responses to requests with an Idempotency-Key, for repeated requests. A null status: the first request is
-- still being processed.
create table sereno.idempotency_keys (
    who         text not null,
    key         text not null,
    request     bytea not null,
    status      integer,
    body        bytea,
    at          timestamptz not null default sereno.now(),
    primary key (who, key)
);

create index idempotency_keys_at on sereno.idempotency_keys (at);

-- Tasks as the code of each service declares them. `tenants`: whether a token of one tenant may run the task.
-- `parameters`: names, types and defaults, for forms.
create table sereno.tasks (
    name        text not null,
    service     text not null,
    tenants     boolean not null,
    queue       text,
    priority    smallint,
    version     integer not null default 1,
    parameters  jsonb,
    declared_at timestamptz not null default sereno.now(),
    primary key (name, service)
);

-- Searches under a name, shared by the users of a tenant, or by those of all tenants (tenant null).
create table sereno.saved_searches (
    list      text not null check (length(list) between 1 and 40),
    tenant    text,
    name      text not null check (length(name) between 1 and 100),
    text      text not null check (length(text) between 1 and 2000),
    saved_by  text not null,
    saved_at  timestamptz not null default sereno.now(),
    unique nulls not distinct (list, tenant, name)
);

-- Return a JSON value for display. A value nested deeper than 200 levels, which not every JSON parser reads, or
-- larger than `most` bytes, is replaced by a note, so that one such row does not hide the others.
create function sereno.shown(value jsonb, most integer default null) returns jsonb
    language sql immutable as $$
    select case
        when octet_length(value::text) > most
        then jsonb_build_object('not shown', format('%s bytes: open it alone', octet_length(value::text)))
        when value @? '$.**{200 to last}'
        then jsonb_build_object('not shown', 'nested more than 200 levels deep')
        else value
    end
$$;

-- Return an error message masked for search by users who see masked messages: without everything that the server
-- hides from them, and some more. This text is only searched; the server masks what is shown.
create function sereno.masked(message text) returns text
    language sql immutable as $$
    select regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(message,
        '://[^\s/:@]*:\S+@', '://********@', 'g'),
        '(bearer|basic)\s+\S+', '\1 ********', 'gi'),
        '(srn_|[srp]k_(live|test)_|eyJ)[^\s"'',;]+', '********', 'gi'),
        '(passw(or)?d|passphrase|contrase.a|senha|secret|token|api[_-]?key)["'']?\s*[=:]\s*'
            '(''[^''\n]+''|"[^"\n]+"|["'']?[^\s&"'',;]+)', '\1=********', 'gi'),
        '([0-9]{4}[ -]){3}[0-9]{1,7}', '********', 'g'),
        '[^\s@<>"''(),;:=]+@[^\s@<>"''(),;:]+', '********', 'g'),
        '\+[1-9]([ ().-]{0,2}[0-9]){6,14}', '********', 'g')
$$;

-- Return whether an error message matches one of the patterns; with `hides`, the masked message must match the same
-- pattern. If each could match another pattern, a search would reveal hidden text: "*guess*" in the message,
-- "********" in the masked one.
create function sereno.message_matches(message text, patterns text[], hides boolean) returns boolean
    language sql immutable as $$
    select exists (select from unnest(patterns) as pattern
                   where message ilike pattern and (hides is not true or sereno.masked(message) ilike pattern))
$$;
