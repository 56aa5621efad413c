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

-- A JSON value as lists and pages show it. What is nested so deep that no reader of JSON can be relied on, or larger than
-- `most` bytes, is named instead, so that one such row does not hide the others.
create function sereno.shown(value jsonb, most integer default null) returns jsonb
    language sql immutable as $$
    select case
        when octet_length(value::text) > most
        then jsonb_build_object('not shown', format('%s bytes: look at it alone', octet_length(value::text)))
        when value @? '$.**{200 to last}'
        then jsonb_build_object('not shown', 'nested more than 200 levels deep')
        else value
    end
$$;

-- What an error said, as those may search it who see it masked: without all that the server hides from them, and rather
-- more. Here only so much is left as can be found; the server itself writes what is seen.
create function sereno.masked(said text) returns text
    language sql immutable as $$
    select regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(said,
        '://[^\s/:@]*:\S+@', '://********@', 'g'),
        '(bearer|basic)\s+\S+', '\1 ********', 'gi'),
        '(srn_|[srp]k_(live|test)_|eyJ)[^\s"'',;]+', '********', 'gi'),
        '(passw(or)?d|passphrase|contrase.a|senha|secret|token|api[_-]?key)["'']?\s*[=:]\s*'
            '(''[^''\n]+''|"[^"\n]+"|["'']?[^\s&"'',;]+)', '\1=********', 'gi'),
        '([0-9]{4}[ -]){3}[0-9]{1,7}', '********', 'g'),
        '[^\s@<>"''(),;:=]+@[^\s@<>"''(),;:]+', '********', 'g'),
        '\+[1-9]([ ().-]{0,2}[0-9]){6,14}', '********', 'g')
$$;

-- Whether what an error said is like one of the patterns; with `hides`, what is seen of it must be like the same one. Two
-- that are like one each would tell what is hidden: "*guess*" of what was said, "********" of what is seen.
create function sereno.said_like(said text, patterns text[], hides boolean) returns boolean
    language sql immutable as $$
    select exists (select from unnest(patterns) as pattern
                   where said ilike pattern and (hides is not true or sereno.masked(said) ilike pattern))
$$;
