-- Notifications: whom to reach and how, what they want, what happened, and what became of every message.

-- Whoever may be told something, by the key that the application knows them by.
create table sereno.recipients (
    id          bigint generated always as identity primary key,
    -- Here and below: empty for those who belong to no tenant, so that an index finds them.
    tenant      text not null default '',
    key         text not null,
    locale      text,
    zone        text,
    -- 64 KiB as JSON is sent; as PostgreSQL writes it, with spaces, that is up to half as much again.
    data        jsonb constraint recipients_data check (octet_length(data::text) <= 98304),
    created_at  timestamptz not null default sereno.now(),
    changed_at  timestamptz not null default sereno.now(),
    constraint recipients_key unique (tenant, key)
);
-- An audience is walked along this.
create index recipients_in_order on sereno.recipients (tenant, id);

-- One way to reach somebody. `keys`: what belongs to it beside its text, such as a secret; never shown.
create table sereno.addresses (
    id            bigint generated always as identity primary key,
    recipient_id  bigint not null references sereno.recipients on delete cascade,
    channel       text not null,
    address       text not null,
    keys          jsonb,
    state         text not null default 'active' check (state in ('active', 'unverified', 'invalid', 'unsubscribed')),
    reason        text,
    created_at    timestamptz not null default sereno.now(),
    changed_at    timestamptz not null default sereno.now(),
    constraint addresses_once unique (recipient_id, channel, address)
);
create index addresses_by_text on sereno.addresses (channel, address);

-- What a recipient wants, or a tenant's default. Each column that is null says nothing; the row with the largest weight
-- that says something about an aspect decides it.
create table sereno.preferences (
    id            bigint generated always as identity primary key,
    tenant        text not null default '',
    recipient_id  bigint references sereno.recipients on delete cascade,
    category      text,
    event         text,
    channel       text,
    wanted        boolean,
    -- As people wrote it, and as it is matched.
    filter        jsonb,
    condition     jsonpath,
    quiet         jsonb,
    weight        smallint not null generated always as (
        (case when recipient_id is null then 0 else 100 end + case when event is null then 0 else 20 end
         + case when category is null then 0 else 10 end + case when channel is null then 0 else 1 end)::smallint) stored,
    changed_at    timestamptz not null default sereno.now(),
    constraint preferences_once unique nulls not distinct (recipient_id, tenant, event, category, channel),
    constraint preferences_filter check ((filter is null) = (condition is null))
);
create index preferences_default on sereno.preferences (tenant) where recipient_id is null;

-- A fact worth telling, written in the transaction that made it true. Once for (type, tenant, subject, key).
-- `audience`: keys of recipients, or null for all who want it. `walked`: the recipient up to whom deliveries were made.
create table sereno.events (
    id          bigint generated always as identity primary key,
    type        text not null,
    tenant      text not null default '',
    subject     text,
    key         text,
    category    text,
    payload     sereno.bounded_json not null,
    channels    text[] not null,
    audience    text[],
    critical    boolean not null default false,
    opt_in      boolean not null default false,
    -- Other channels for those whom the first did not reach: [{"from", "to", "after", "unless"}].
    steps       jsonb,
    -- At most so many of this type for a recipient and channel, in so many seconds.
    throttle_most     integer,
    throttle_seconds  double precision,
    -- What belongs into one message, and for how long it is gathered.
    digest          text,
    digest_seconds  double precision,
    due_at      timestamptz not null default sereno.now(),
    expires_at  timestamptz,
    created_at  timestamptz not null default sereno.now(),
    walked      bigint not null default 0,
    matched_at  timestamptz,
    note        text,
    constraint events_once unique nulls not distinct (type, tenant, subject, key)
);
create index events_unmatched on sereno.events (due_at) where matched_at is null;

-- One (event, recipient, channel, address): the operational truth. `account`: whose credentials send it.
-- `job_id`: who is sending it right now, or was when nobody heard of it again; `attempts` tells one try from the next.
create table sereno.deliveries (
    id             bigint generated always as identity primary key,
    event_id       bigint not null,
    recipient_id   bigint not null,
    address_id     bigint,
    channel        text not null,
    account        text not null default '',
    tenant         text not null default '',
    state          text not null default 'pending' check (state in (
        'pending', 'sending', 'sent', 'delivered', 'read', 'bounced',
        'skipped', 'failed', 'invalid', 'expired', 'dead', 'unknown')),
    reason         text,
    due_at         timestamptz not null,
    expires_at     timestamptz,
    attempts       smallint not null default 0,
    unknowns       smallint not null default 0,
    job_id         bigint,
    provider_id    text,
    error_code     text,
    error_message  text,
    receipt_at     timestamptz,
    sent_at        timestamptz,
    -- What is gathered into one message, and the delivery that carries it for all.
    digest         text,
    digest_of      bigint,
    created_at     timestamptz not null default sereno.now(),
    changed_at     timestamptz not null default sereno.now(),
    constraint deliveries_once unique nulls not distinct (event_id, recipient_id, channel, address_id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index deliveries_due on sereno.deliveries (channel, account, due_at, id) where state = 'pending';
create index deliveries_of_recipient on sereno.deliveries (recipient_id, id);
create index deliveries_sending on sereno.deliveries (job_id) where state = 'sending';
create index deliveries_receipts on sereno.deliveries (channel, account, receipt_at) where receipt_at is not null;
create index deliveries_provider on sereno.deliveries (channel, provider_id) where provider_id is not null;

-- What a provider said, once, whoever tells it twice.
create table sereno.receipts (
    id           bigint generated always as identity primary key,
    channel      text not null,
    receipt_id   text not null,
    delivery_id  bigint,
    outcome      text not null,
    code         text,
    at           timestamptz not null default sereno.now(),
    constraint receipts_once unique (channel, receipt_id)
);
create index receipts_of_delivery on sereno.receipts (delivery_id);

-- A channel that does not work, for anybody or for one account, until somebody has mended it.
create table sereno.channel_pauses (
    channel  text not null,
    account  text not null,
    reason   text not null,
    since    timestamptz not null default sereno.now(),
    primary key (channel, account)
);

-- Credentials of a tenant for a channel. Never shown.
create table sereno.accounts (
    channel     text not null,
    tenant      text not null,
    settings    jsonb not null,
    changed_at  timestamptz not null default sereno.now(),
    primary key (channel, tenant)
);

-- What was told inside the application itself.
create table sereno.inbox (
    id            bigint generated always as identity primary key,
    recipient_id  bigint not null references sereno.recipients on delete cascade,
    delivery_id   bigint not null unique,
    event         text not null,
    title         text not null,
    body          text not null,
    data          jsonb,
    created_at    timestamptz not null default sereno.now(),
    seen_at       timestamptz,
    read_at       timestamptz,
    archived_at   timestamptz
);
create index inbox_of_recipient on sereno.inbox (recipient_id, id desc) where archived_at is null;
create index inbox_unread on sereno.inbox (recipient_id) where read_at is null and archived_at is null;

-- The name of a zone that this server knows: one row with another must not stop an audience.
create function sereno.known_zone(zone text) returns text
    language plpgsql stable as $$
begin
    perform now() at time zone zone;
    return coalesce(zone, 'UTC');
exception when others then
    return 'UTC';
end $$;

-- When quiet hours end that hold at this moment in that zone; null when it is not quiet. Spans as {"start", "end", "days"};
-- a day is that on which a span starts, 1 for Monday. Whoever sends looks once more.
create function sereno.quiet_until(spans jsonb, zone text, moment timestamptz) returns timestamptz
    language sql stable as $$
    select max(ends)
    from jsonb_to_recordset(spans) as span(start time, "end" time, days integer[])
    cross join (select sereno.known_zone(zone) as here) as place
    cross join lateral (select (moment at time zone here)::date as today) as local
    cross join lateral (values (today - 1), (today)) as first(day)
    cross join lateral (
        select (day + start) at time zone here as begins,
               (day + case when span."end" <= start then 1 else 0 end + span."end") at time zone here as ends
    ) as instant
    where begins <= moment and moment < ends
      and (days is null or extract(isodow from day)::integer = any(days))
    $$;

-- What somebody wants of an event on a channel: each aspect by the row with the largest weight that says something of it.
create function sereno.choice(
    of_recipient bigint, of_tenant text, of_category text, of_event text, by_channel text,
    out wanted boolean, out condition jsonpath, out quiet jsonb
)
    language sql stable as $$
    select (array_agg(p.wanted order by weight desc) filter (where p.wanted is not null))[1],
           (array_agg(p.condition order by weight desc) filter (where p.condition is not null))[1],
           (array_agg(p.quiet order by weight desc) filter (where p.quiet is not null))[1]
    from (select * from sereno.preferences where recipient_id = of_recipient
          union all
          select * from sereno.preferences where recipient_id is null and tenant = of_tenant) as p
    where (p.category is null or p.category = of_category) and (p.event is null or p.event = of_event)
      and (p.channel is null or p.channel = by_channel)
    $$;

-- Words of messages that people change while everything runs; they go before the files of the project. Empty: any locale,
-- any tenant.
create table sereno.templates (
    event       text not null,
    channel     text not null,
    locale      text not null default '',
    tenant      text not null default '',
    part        text not null check (part in ('title', 'body', 'html', 'options')),
    source      text not null,
    changed_at  timestamptz not null default sereno.now(),
    changed_by  text not null,
    primary key (event, channel, locale, tenant, part)
);
