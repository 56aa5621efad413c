-- The tables of this program, and views in the words of the original design. Recipients, deliveries and their outcomes
-- are in sereno's tables: run `sereno migrate` first.
create schema if not exists tenders;

-- Every code ever ingested, never deleted: an archived tender is not ingested a second time.
create table if not exists tenders.registry (
    code text primary key,
    claimed_at timestamptz not null default now()
);

create table if not exists tenders.tenders (
    code text primary key references tenders.registry,
    title text not null,
    kind text,
    region text,
    buyer text,
    -- In pesos; another currency or a range is in amount_text.
    amount bigint,
    amount_text text,
    categories text[],
    published_at timestamptz,
    closes_at timestamptz,
    found_at timestamptz not null default now(),
    -- A receipt says that Apple or Google accepted the push for at least one phone.
    notified boolean not null default false
);

create index if not exists tenders_not_notified on tenders.tenders (found_at) where not notified;

-- The day up to which the API's lists were read.
create table if not exists tenders.progress (
    one_row boolean primary key default true check (one_row),
    read_until date not null
);

-- The minute up to which pushes were counted.
create table if not exists tenders.pushes_counted (
    one_row boolean primary key default true check (one_row),
    until timestamptz not null
);

-- Installations of the app. Their keys are those of sereno's recipients.
create table if not exists tenders.installations (
    id text primary key,
    -- SHA-256 of the secret; null for one that was registered by code.
    secret_hash bytea,
    push_token text unique,
    platform text not null default 'unknown',
    app_version text not null default 'unknown',
    locale text not null default 'es-CL',
    preferences jsonb not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now()
);

create index if not exists installations_created on tenders.installations (created_at);

-- The original design's words. With `set search_path = tenders, public` its runbook's queries work as they are. The views
-- read sereno's read contract (docs/reference/sql.md) and, where marked, tables that it does not cover.

create or replace view tenders.licitacion_registry as
select code as codigo_externo, code as licitacion_id, claimed_at as created_at from tenders.registry;

create or replace view tenders.licitaciones as
select code as id, code as codigo_externo, title as nombre, buyer as organismo_nombre, kind as tipo,
       amount as monto_estimado, amount_text as monto_label, 'CLP' as moneda,
       published_at as fecha_publicacion, closes_at as fecha_cierre, 'Publicada' as estado,
       'https://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx?idlicitacion=' || code as url,
       region, coalesce(categories[1], 'General') as categoria, categories[1] as rubro_code, notified as notificada,
       found_at as created_at
from tenders.tenders;

-- One row for each run of a cycle that has started, of the last `SERENO_KEEP_HISTORY_DAYS`; older ones are in the archive.
create or replace view tenders.worker_runs as
select run.id, names.worker_name, run.started_at, run.finished_at,
       coalesce((run.result ->> 'found')::int, 0) as licitaciones_found,
       coalesce((run.result ->> 'new')::int, 0) as licitaciones_new,
       coalesce((run.result ->> 'sent')::int, 0) as notifications_sent,
       coalesce((run.result ->> 'retryable')::int, 0) as notifications_retryable,
       coalesce((run.result ->> 'failed')::int, 0) as notifications_failed,
       coalesce((run.result ->> 'invalidated')::int, 0) as notifications_invalidated,
       coalesce((run.result ->> 'receipts')::int, 0) as receipts_processed,
       coalesce((run.result ->> 'confirmed')::int, 0) as licitaciones_notificadas,
       moved.licitaciones as archived_licitaciones, moved.deliveries as archived_deliveries,
       case when run.state <> 'succeeded' then coalesce(run.error_type || ': ' || run.error_message, run.reason) end
           as error_message,
       run.created_at
from sereno.jobs_v1 as run
join (values ('tenders.ingest', 'ingest'), ('tenders.dispatch', 'dispatch'), ('tenders.receipt', 'receipt'),
             ('sereno.archive_move', 'cleanup'), ('sereno.archive_export', 'archive_export')) as names (task, worker_name)
     on names.task = run.task
-- Batches of the archive are no part of the read contract.
left join lateral (
    select coalesce(sum(batch.rows) filter (where batch.source = 'tenders.tenders'), 0)::int as licitaciones,
           coalesce(sum(batch.rows) filter (where batch.kind = 'deliveries'), 0)::int as deliveries
    from sereno.archive_batches as batch
    where run.task = 'sereno.archive_move' and batch.moved_at between run.started_at and run.finished_at) as moved on true
where run.started_at is not null;

create or replace view tenders.notification_events as
select id, 'new_licitacion' as type, subject as licitacion_id, created_at
from sereno.events_v1 where type = 'tenders.published' and tenant = 'tenders';

create or replace view tenders.device_installations as
select phone.id as installation_id, phone.push_token, phone.platform, phone.app_version, phone.locale,
       phone.push_token is not null as push_capable, coalesce(address.state = 'active', false) as active,
       case when address.state <> 'active' then address.changed_at end as invalidated_at,
       case when address.state <> 'active' then coalesce(address.reason, address.state)
            when phone.push_token is null then 'missing-token' end as invalid_reason,
       phone.last_seen_at, phone.created_at, phone.updated_at
from tenders.installations as phone
left join sereno.recipients_v1 as person on person.key = phone.id and person.tenant = 'tenders'
left join sereno.addresses_v1 as address
     on address.recipient_id = person.id and address.channel = 'tenders_expo' and address.address = phone.push_token;

create or replace view tenders.notification_preferences as
select id as installation_id, coalesce((preferences ->> 'enabled')::boolean, true) as enabled,
       nullif(array_to_string(array(select jsonb_array_elements_text(preferences -> 'categories')), ', '), '') as rubro,
       nullif(array_to_string(array(select jsonb_array_elements_text(preferences -> 'kinds')), ', '), '') as tipo,
       nullif(array_to_string(array(select jsonb_array_elements_text(preferences -> 'regions')), ', '), '') as region,
       (preferences ->> 'amount_min')::numeric as monto_min, (preferences ->> 'amount_max')::numeric as monto_max,
       nullif(array_to_string(array(select jsonb_array_elements_text(preferences -> 'words')), ', '), '') as palabras,
       updated_at
from tenders.installations;

-- A lock is the job that is sending: its session has a lease.
create or replace view tenders.notification_deliveries as
select delivery.id, delivery.event_id as notification_event_id, delivery.recipient as installation_id, 'expo' as provider,
       case when delivery.state in ('pending', 'sending', 'unknown')
                then case when delivery.attempts > 0 and delivery.state <> 'sending' then 'retryable' else 'pending' end
            when delivery.state in ('delivered', 'read') then 'ok'
            when delivery.state in ('sent', 'invalid') then delivery.state
            else 'failed' end as status,
       delivery.state as sereno_state, delivery.attempts as attempt_count,
       case when delivery.state = 'pending' then delivery.due_at end as next_attempt_at,
       lock.started_at as locked_at, lock.name as locked_by,
       -- A push is complete when its receipt says so.
       case when delivery.state <> 'sent' then delivery.completed_at end as completed_at,
       coalesce(delivery.error_code, case when delivery.state in ('skipped', 'failed', 'expired') then delivery.reason end)
           as last_error_code,
       delivery.error_message as last_error_message,
       delivery.provider_id as provider_ticket_id,
       -- Expo names a receipt as its ticket.
       coalesce(delivery.receipt_id, case when delivery.state not in ('pending', 'sending', 'sent') then delivery.provider_id end)
           as provider_receipt_id,
       delivery.sent_at as last_attempt_at, delivery.created_at, delivery.changed_at as updated_at
from sereno.deliveries_v1 as delivery
left join lateral (
    select job.started_at, format('dispatch:%s:%s:%s', job.host, job.pid, job.session_id) as name
    from sereno.jobs_v1 as job
    where job.id = delivery.job_id and job.state = 'running' and delivery.state = 'sending') as lock on true
where delivery.channel = 'tenders_expo' and delivery.tenant = 'tenders';

-- Files and batches of the archive are no part of the read contract.
create or replace view tenders.archive_exports as
select batch.id * 100000 + file.number as id,
       case when batch.source = 'tenders.tenders' then 'licitaciones'
            when batch.kind = 'deliveries' then 'notification_deliveries' else file.kind end as entity,
       to_char(file.from_at, 'YYYY-MM') as partition_month, file.object as object_key, file.rows as row_count,
       file.from_at as min_created_at, file.to_at as max_created_at, file.sha256 as checksum,
       case when batch.dropped_at is not null then 'dropped' when file.verified_at is not null then 'verified'
            when file.error is not null then 'failed' when file.uploaded_at is not null then 'exported'
            else 'pending' end as status,
       file.uploaded_at as exported_at, file.verified_at, batch.drop_eligible_at, batch.dropped_at,
       coalesce(file.error, batch.error) as last_error, batch.moved_at as created_at
from sereno.archive_files as file join sereno.archive_batches as batch on batch.id = file.batch_id;
