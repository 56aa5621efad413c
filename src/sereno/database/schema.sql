-- The sum of the migrations, as pg_dump sees it. Written by `make schema`; read it, do not load it.

CREATE SCHEMA sereno;

CREATE SCHEMA sereno_archive;

CREATE DOMAIN sereno.bounded_json AS jsonb
	CONSTRAINT nested_at_most_100_deep CHECK ((((pg_column_size(VALUE) < 800) AND (pg_column_compression(VALUE) IS NULL)) OR (NOT jsonb_path_exists(VALUE, 'strict $.**{100}?(@.type() == "array" || @.type() == "object")'::jsonpath))));

CREATE DOMAIN sereno.arguments AS sereno.bounded_json
	CONSTRAINT arguments_are_an_object CHECK ((jsonb_typeof((VALUE)::jsonb) = 'object'::text));

CREATE TYPE sereno.claimed_job AS (
	id bigint,
	attempt integer,
	task text,
	args jsonb,
	queue text,
	tenant text,
	priority smallint,
	failures integer,
	crashes integer,
	trace text,
	run_at timestamp with time zone,
	claimed_at timestamp with time zone,
	planned_at timestamp with time zone
);

CREATE TYPE sereno.job_result AS (
	id bigint,
	task text,
	result jsonb
);

CREATE TYPE sereno.outcome AS (
	id bigint,
	attempt integer,
	outcome text,
	delay double precision,
	until timestamp with time zone,
	retries integer,
	seconds double precision,
	reason text,
	error_type text,
	error_message text,
	traceback text,
	frame text,
	history boolean,
	result sereno.bounded_json
);

CREATE TYPE sereno.ready_range AS (
	queue text,
	priority smallint,
	low bigint,
	high bigint,
	most integer,
	is_back boolean
);

CREATE TYPE sereno.settled_job AS (
	id bigint,
	attempt integer,
	settled boolean,
	state text,
	run_at timestamp with time zone,
	why text
);

CREATE TYPE sereno.taken_lane AS (
	id bigint,
	queue text,
	limiters bigint[],
	units integer[],
	order_id bigint,
	turn double precision,
	floor_priority smallint,
	floor_seq bigint,
	behind bigint,
	band smallint,
	has_head boolean,
	fair text,
	weight double precision,
	clock double precision,
	is_open boolean,
	gives integer,
	waits bigint
);

CREATE TYPE sereno.taken_limiter AS (
	id bigint,
	kind text,
	slots integer,
	per_second double precision,
	burst double precision,
	tokens double precision,
	closed double precision,
	held bigint[],
	checks integer,
	capacity double precision,
	need double precision,
	is_touched boolean
);

CREATE FUNCTION sereno.add_figures() RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    lines  sereno.ended_attempts[];
begin
    with gone as (
        delete from sereno.ended_attempts
        where id = any(array(select id from sereno.ended_attempts order by id limit 10000 for update skip locked))
        returning *
    )
    select array_agg(gone) into lines from gone;
    if lines is null then
        return;
    end if;
    perform sereno.keep_moving();
    insert into sereno.minutes as m select * from sereno.figures_of(lines, '1 minute')
    on conflict (minute, queue, task) do update
    set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
        cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
        waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
        run_seconds = m.run_seconds + excluded.run_seconds;
    insert into sereno.ten_minutes as m select * from sereno.figures_of(lines, '10 minutes')
    on conflict (minute, queue, task) do update
    set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
        cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
        waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
        run_seconds = m.run_seconds + excluded.run_seconds;
    insert into sereno.tenant_hours as h (hour, tenant, ended, failed, seconds)
    select date_trunc('hour', at, 'UTC'), tenant, count(*), count(*) filter (where outcome <> 'succeeded'), sum(ran)
    from unnest(lines) where tenant is not null group by 1, 2 order by 1, 2
    on conflict (hour, tenant) do update
    set ended = h.ended + excluded.ended, failed = h.failed + excluded.failed, seconds = h.seconds + excluded.seconds;
    insert into sereno.error_groups as g (fingerprint, task, error_type, message, frame, first_at, last_at, count, last_job_id)
    select fingerprint, min(task), min(error_type), (array_agg(left(message, 500) order by id desc))[1], min(frame),
           min(at), max(at), count(*), max(job_id)
    from unnest(lines) as line
    where fingerprint is not null
      and (exists (select from sereno.error_groups known where known.fingerprint = line.fingerprint)
           or (select count(*) from sereno.error_groups) < 10000)
    group by fingerprint order by fingerprint
    on conflict (fingerprint) do update
    set message = excluded.message, last_at = greatest(g.last_at, excluded.last_at), count = g.count + excluded.count,
        last_job_id = excluded.last_job_id;
    -- Beyond a hundred tenants of an hour, new ones are counted under an empty name.
    insert into sereno.error_hours as h (fingerprint, hour, tenant, count)
    select fingerprint, hour, case when is_known or tenants + place <= 100 then tenant else '' end, sum(count)
    from (select line.*, so_far.*, row_number() over (partition by fingerprint, hour, is_known order by tenant) as place
          from (select fingerprint, date_trunc('hour', at, 'UTC') as hour, coalesce(tenant, '') as tenant, count(*) as count
                from unnest(lines) where fingerprint in (select known.fingerprint from sereno.error_groups known)
                group by 1, 2, 3) as line
          cross join lateral (
              select count(*) as tenants, coalesce(bool_or(seen.tenant = line.tenant), false) as is_known
              from sereno.error_hours seen
              where seen.fingerprint = line.fingerprint and seen.hour = line.hour) as so_far) as ranked
    group by 1, 2, 3 order by 1, 2, 3
    on conflict (fingerprint, hour, tenant) do update set count = h.count + excluded.count;
    insert into sereno.tries as t (hour, task, tries)
    select date_trunc('hour', at, 'UTC'), task,
           sereno.sum_of(array(select (least(failures, 10) = place)::integer from generate_series(0, 10) as place order by place))
    from unnest(lines) where outcome = 'succeeded' group by 1, 2 order by 1, 2
    on conflict (hour, task) do update set tries = sereno.added(t.tries, excluded.tries);
end $$;

CREATE FUNCTION sereno.added(integer[], integer[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE STRICT
    AS $_$
    select array_agg(coalesce(mine, 0) + coalesce(theirs, 0) order by place)
    from unnest($1, $2) with ordinality as both_of(mine, theirs, place)
    $_$;

CREATE FUNCTION sereno.archive_children(of_batch bigint, most integer, OUT moved bigint, OUT is_done boolean) RETURNS record
    LANGUAGE plpgsql
    AS $_$
declare
    parent sereno.archive_batches;
    child record;
    made record;
    parents bigint[];
    chosen bigint[];
    all_fit boolean;
    reached bigint;
begin
    moved := 0;
    is_done := true;
    select * into parent from sereno.archive_batches where id = of_batch and not children_moved for update;
    if not found then
        return;
    end if;
    select * into child from (values
        ('jobs', 'attempts', 'sereno.attempts'::regclass, 'job_id', array['job_id', 'number'], 'finished_at'),
        ('deliveries', 'receipts', 'sereno.receipts'::regclass, 'delivery_id', array['id'], 'at')
    ) as known (of_kind, kind, source, refers, keys, moment) where of_kind = parent.kind;
    if child.kind is not null then
        -- Only parents that can have children: a success at the first attempt has none.
        execute format('select array(select id from sereno_archive.%I where id > %L%s order by id limit %s)', parent.held_in, parent.children_after,
                       case parent.kind when 'jobs' then ' and (state <> ''succeeded'' or attempt > 1)' else '' end, most) into parents;
        -- By index: a join would read all partitions of the attempts.
        execute format('select array_agg(id) filter (where fits), coalesce(bool_and(fits), true) from ('
                       'select id, sum(count) over (order by id) <= %3$s or row_number() over (order by id) = 1 as fits '
                       'from (select %2$I as id, count(*) from %1$s where %2$I = any($1) group by 1) as counted) as summed',
                       child.source, child.refers, most) into chosen, all_fit using parents;
        if chosen is not null then
            made := sereno.new_batch(child.kind, child.source, child.keys, child.moment);
            execute format('with gone as (delete from %s where %I = any($1) returning *) insert into sereno_archive.%I select * from gone',
                           child.source, child.refers, made.held) using chosen;
            get diagnostics moved = row_count;
            if moved = 0 then
                perform sereno.forget_batch(made.batch, made.held);
            end if;
        end if;
        is_done := all_fit and cardinality(parents) < most;
        reached := case when all_fit then parents[cardinality(parents)] else (select max(id) from unnest(chosen) as id) end;
    end if;
    update sereno.archive_batches set children_moved = is_done, children_after = coalesce(reached, children_after) where id = of_batch;
end $_$;

CREATE FUNCTION sereno.archive_day(of_kind text, name text) RETURNS bigint
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $_$
declare
    parent text := case of_kind when 'jobs' then 'history_done' when 'fires' then 'fires' when 'attempts' then 'attempts' end;
    batch bigint;
    held text;
    is_empty boolean;
begin
    if parent is null or name !~ ('^' || parent || '_[0-9]{8}$') then
        raise exception '% is not a day of %', name, of_kind;
    end if;
    -- Two workers may call this at the same time: the second one waits, then finds that the day is gone.
    perform pg_advisory_xact_lock(hashtext('sereno.archive'));
    if to_regclass(format('sereno.%I', name)) is null then
        return null;
    end if;
    execute format('alter table sereno.%I detach partition sereno.%I', parent, name);
    execute format('select not exists (select from sereno.%I)', name) into is_empty;
    if is_empty then
        execute format('drop table sereno.%I', name);
        return null;
    end if;
    batch := nextval(pg_get_serial_sequence('sereno.archive_batches', 'id'));
    held := of_kind || '_' || batch;
    execute format('alter table sereno.%I rename to %I', name, held);
    execute format('alter table sereno.%I set schema %I', held, rtrim('sereno_archive.', '.'));
    insert into sereno.archive_batches (id, kind, source, held_in, key_columns, time_column, schema_version, children_moved)
    overriding system value
    values (batch, of_kind, format('sereno.%I', parent), held,
            case of_kind when 'jobs' then array['id'] when 'attempts' then array['job_id', 'number'] else array['planned_at', 'schedule_id'] end,
            case of_kind when 'fires' then 'planned_at' else 'finished_at' end,
            (select max(number) from sereno.migrations), of_kind <> 'jobs');
    return batch;
end $_$;

CREATE FUNCTION sereno.archive_found(of_kind text, source regclass, keys text[], moment text, condition text, most integer) RETURNS bigint
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $$
declare
    made record;
    moved bigint;
    any_row boolean;
begin
    condition := format('%s and not exists (select from sereno.restored r where r.kind = %L and r.key = %s)',
                    condition, of_kind, sereno.archive_key(source, keys, 't.'));
    -- ONLY: a ctid identifies no row where other tables inherit from this one.
    execute format('select exists (select from only %s as t where %s)', source, condition) into any_row;
    if not any_row then
        return 0;
    end if;
    made := sereno.new_batch(of_kind, source, keys, moment);
    execute format('with chosen as materialized (select t.ctid as place from only %s as t where %s order by %s limit %s for update of t skip locked), '
                   'gone as (delete from only %s where ctid = any(array(select place from chosen)) returning *) '
                   'insert into sereno_archive.%I select * from gone',
                   source, condition, (select string_agg(format('t.%I', name), ', ') from unnest(keys) as name), most, source, made.held);
    get diagnostics moved = row_count;
    if moved = 0 then
        perform sereno.forget_batch(made.batch, made.held);
        return 0;
    end if;
    update sereno.archive_batches set children_moved = false where id = made.batch;
    -- Children beyond the first page follow in separate transactions.
    perform sereno.archive_children(made.batch, most);
    if of_kind = 'deliveries' then
        execute format('delete from sereno.message_ids where delivery_id in (select id from sereno_archive.%I)', made.held);
    end if;
    return moved;
end $$;

CREATE FUNCTION sereno.archive_key(held regclass, names text[], prefix text DEFAULT ''::text, texts text[] DEFAULT '{}'::text[]) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select string_agg(
        case when sereno.has_own_cast(atttypid) then format('format(''%%s'', %1$s%2$I)', prefix, name)
             when name = any(texts) then format('%1$s%2$I::text', prefix, name)
             when atttypid in ('timestamptz'::regtype, 'timestamp'::regtype) then
                 format('case when isfinite(%1$s%2$I) then round(extract(epoch from %1$s%2$I) * 1000000)::text else %1$s%2$I::text end', prefix, name)
             when atttypid = 'date'::regtype then
                 format('case when isfinite(%1$s%2$I) then (%1$s%2$I - date ''1970-01-01'')::text else %1$s%2$I::text end', prefix, name)
             else format('%1$s%2$I::text', prefix, name) end, ' || chr(9) || ' order by place)
    from unnest(names) with ordinality as named (name, place)
    join pg_attribute on attrelid = held and attname = name and not attisdropped
$_$;

CREATE FUNCTION sereno.archive_rows(part text, before timestamp with time zone, most integer) RETURNS bigint
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $_$
declare
    old constant text := format('< %L', before);
begin
    case part
        when 'dead' then
            return sereno.archive_found('jobs', 'sereno.history_dead', array['id'], 'finished_at', 't.finished_at ' || old, most);
        when 'jobs' then
            return sereno.archive_found('jobs', 'sereno.history_done_default', array['id'], 'finished_at', 't.finished_at ' || old, most);
        when 'fires' then
            return sereno.archive_found('fires', 'sereno.fires_default', array['planned_at', 'schedule_id'], 'planned_at',
                't.fired_at ' || old, most);
        when 'deliveries' then
            -- Deliveries that are pending or being sent stay; for the others no more receipts are expected.
            return sereno.archive_found('deliveries', 'sereno.deliveries', array['id'], 'created_at',
                't.created_at ' || old || ' and t.changed_at ' || old || $found$ and t.state not in ('pending', 'sending')$found$, most);
        when 'events' then
            return sereno.archive_found('events', 'sereno.events', array['id'], 'created_at',
                't.created_at ' || old || ' and t.due_at ' || old || ' and t.matched_at is not null '
                'and not exists (select from sereno.deliveries d where d.event_id = t.id)', most);
        when 'logs' then
            return sereno.archive_found('logs', 'sereno.logs', array['id'], 'at', 't.at ' || old, most);
        else
            raise exception '% is not archived by rows', part;
    end case;
end $_$;

CREATE FUNCTION sereno.archive_table(named text, moment text, before timestamp with time zone, most integer) RETURNS bigint
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $$
declare
    source regclass := to_regclass(named);
    kind text;
    keys text[];
    other text;
begin
    if source is null then
        raise exception 'there is no table %', named using errcode = 'undefined_table', hint = 'Name it with its schema, such as public.tenders.';
    end if;
    select format('%I.%I', nspname, relname) into kind from pg_class join pg_namespace n on n.oid = relnamespace
    where pg_class.oid = source and relkind = 'r' and format('%I.', nspname) not in ('sereno.', 'sereno_archive.')
      and nspname !~ '^pg_' and nspname <> 'information_schema';
    if kind is null then
        raise exception '% is not an ordinary table of yours', named using errcode = 'wrong_object_type';
    end if;
    select array_agg(attname::text order by place) into keys
    from pg_index cross join unnest(indkey::int2[]) with ordinality as part (number, place) join pg_attribute on attrelid = indrelid and attnum = number
    where indrelid = source and indisprimary and place <= indnkeyatts;
    if keys is null then
        raise exception '% has no primary key', kind using errcode = 'invalid_table_definition',
            hint = 'It identifies the rows when a file is verified: add one.';
    end if;
    if not exists (select from pg_attribute where attrelid = source and attname = moment and not attisdropped
                   and atttypid = any('{timestamptz, timestamp, date}'::regtype[])) then
        raise exception '% has no column % that holds a date or an instant', kind, moment using errcode = 'undefined_column';
    end if;
    select conrelid::regclass into other from pg_constraint where confrelid = source and contype = 'f' and confdeltype in ('c', 'n', 'd') limit 1;
    if other is not null then
        raise exception 'rows of % would be deleted or changed with those of %', other, kind
            using errcode = 'dependent_objects_still_exist', hint = 'Archive that table first, and let its foreign key restrict deletes.';
    end if;
    return sereno.archive_found(kind, source, keys, moment, format('t.%I < %L', moment, before), most);
end $$;

CREATE FUNCTION sereno.are_tags(tags text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select cardinality(tags) <= 50
           and not exists (select from unnest(tags) as tag where tag is null or length(tag) not between 1 and 200)
$$;

CREATE FUNCTION sereno.bucket(seconds double precision) RETURNS integer[]
    LANGUAGE sql IMMUTABLE
    AS $$
    select array_agg((place = 1 + (select count(*) from unnest(edges) as edge where edge < seconds))::integer order by place)
    from (values ('{0.001,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,1800}'::double precision[])) as e(edges),
         generate_series(1, 17) as place
    $$;

CREATE FUNCTION sereno.caller() RETURNS text
    LANGUAGE sql STABLE
    AS $$ select coalesce(nullif(current_setting('role'), 'none'), session_user::text) $$;

CREATE FUNCTION sereno.check_event(type text, payload jsonb, named text[], at timestamp with time zone, ttl interval, definition jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
    wrong  text;
    hint   text;
begin
    if definition is null then
        wrong := format('no event "%s" is declared: start a worker of the application that declares it once', type);
        hint := 'Declared events: select name from sereno.event_types';
    elsif payload is null or jsonb_typeof(payload) <> 'object' then
        wrong := format('event %s: the payload must be an object with named fields, not %s', type,
                        coalesce(left(payload::text, 60), 'null'));
        hint := 'For an event without fields, write ''{}''.';
    elsif octet_length(payload::text) > 65536 then
        wrong := format('event %s: %s bytes of payload, the limit is 65536', type, octet_length(payload::text));
        hint := 'Store it elsewhere, and send a reference.';
    elsif cardinality(named) = 0 then
        wrong := format('event %s: "to" is empty, so the event would reach no recipient', type);
        hint := 'Leave it out to notify everyone who wants it.';
    elsif cardinality(named) > 10000 then
        wrong := format('event %s: %s recipients by name, at most 10000', type, cardinality(named));
        hint := 'Leave "to" out, and let preferences say who wants it.';
    elsif array_position(named, null) is not null then
        wrong := format('event %s: a key in "to" is null', type);
        hint := 'Leave it out, or name a recipient.';
    elsif at not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then
        wrong := format('event %s: at is out of range: 1900 to 9999', type);
        hint := 'Leave it out for now.';
    elsif ttl < interval '0' or not isfinite(ttl) then
        wrong := format('event %s: ttl must be finite and not negative', type);
        hint := 'Leave it out to use the ttl that the code declares.';
    else
        perform sereno.check_text('to', name) from unnest(named) as name;
        return;
    end if;
    raise exception '%', wrong using errcode = 'invalid_parameter_value', hint = hint;
end $$;

CREATE FUNCTION sereno.check_links(most integer DEFAULT 1000) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    checked      bigint[] := array(select predecessor from sereno.dependencies where to_check order by predecessor limit most);
    marked       bigint[];
    gone_ids     bigint[];
    gone_states  text[];
begin
    if cardinality(checked) = 0 then
        return false;
    end if;
    marked := array(select id from sereno.jobs
                    where id = any(checked) and state in ('ready', 'scheduled', 'waiting') order by id for update skip locked);
    update sereno.jobs set has_successors = true where id = any(marked) and has_successors is not true;
    update sereno.dependencies set to_check = false where predecessor = any(marked) and to_check;
    -- A predecessor that is in no table was deleted, and what waits for it is cancelled; or it succeeded without history; or,
    -- where queues are carried, it may be in a message: then the order could not be kept.
    select array_agg(id), array_agg(state) into gone_ids, gone_states
    from (select id, coalesce((select history.state from sereno.history where history.id = p.id
                               order by finished_at desc limit 1),
                              (select 'cancelled' from sereno.deleted_jobs where deleted_jobs.id = p.id),
                              (select 'cancelled' from sereno.carrier_states limit 1),
                              'succeeded') as state
          from unnest(checked) as p(id)
          where (select true from sereno.jobs where jobs.id = p.id) is null
          group by id order by id) as gone;
    update sereno.dependencies set to_check = false where predecessor = any(gone_ids) and to_check;
    if gone_ids is not null then
        perform sereno.end_links(gone_ids, array_fill(0::bigint, array[cardinality(gone_ids)]), gone_states);
    end if;
    return true;
end $$;

CREATE FUNCTION sereno.check_requires(task text, requires jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
begin
    if jsonb_typeof(requires) <> 'object' or requires - '{version,key}'::text[] <> '{}'
       or (requires ? 'version' and not coalesce(requires ->> 'version' ~ '^[1-9][0-9]{0,8}$', false))
       or (requires ? 'key' and (jsonb_typeof(requires -> 'key') <> 'string' or length(requires ->> 'key') not between 1 and 200)) then
        raise exception 'task "%": a worker cannot meet the requirements %', left(task, 60), left(requires::text, 200)
            using errcode = 'invalid_parameter_value',
                  hint = 'Such as {"version": 2}, {"key": "2026b"} or both: a version is a positive integer, a key is the id of a key.';
    end if;
end $_$;

CREATE FUNCTION sereno.check_schedule(key text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if not has_table_privilege(session_user, 'sereno.schedules', 'insert')
       and exists (select from sereno.schedules s where s.key = check_schedule.key and s.declared_by is not null) then
        raise exception 'role % may not change schedule "%", which the code declares', session_user, left(key, 60)
            using errcode = 'insufficient_privilege', hint = 'Choose another key.';
    end if;
end $$;

CREATE FUNCTION sereno.check_task(task text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    -- Concatenated, because loading this file into another schema replaces the token "sereno."; the task names stay.
    if starts_with(task, 'sereno' || '.') and not has_table_privilege(session_user, 'sereno.jobs', 'insert') then
        raise exception 'role % may not enqueue task "%"', session_user, left(task, 60)
            using errcode = 'insufficient_privilege', hint = 'Name a task of your own application.';
    end if;
end $$;

CREATE FUNCTION sereno.check_text(name text, value text, longest integer DEFAULT 500) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if value = '' or length(value) > longest then
        raise exception '% "%" must be text of 1 to % characters', name, left(value, 60), longest
            using errcode = 'invalid_parameter_value', hint = 'Leave it out if there is none.';
    end if;
end $$;

CREATE FUNCTION sereno.choice(of_recipient bigint, of_tenant text, of_category text, of_event text, by_channel text, OUT wanted boolean, OUT condition jsonpath, OUT quiet jsonb) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    select sereno.first(p.wanted order by weight desc), sereno.first(p.condition order by weight desc),
           sereno.first(p.quiet order by weight desc)
    from (select * from sereno.preferences where recipient_id = of_recipient
          union all
          select * from sereno.preferences where recipient_id is null and tenant = of_tenant) as p
    where (p.category is null or p.category = of_category) and (p.event is null or p.event = of_event)
      and (p.channel is null or p.channel = by_channel)
    $$;

CREATE FUNCTION sereno.claim_jobs(session bigint, queues text[] DEFAULT NULL::text[], most integer DEFAULT 1) RETURNS SETOF sereno.claimed_job
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    own         sereno.sessions := sereno.own_session(session);
    moment      timestamptz := sereno.now();
    began       timestamptz := clock_timestamp();
    wanted      text[] := array(select distinct unnest(coalesce(queues, array(select jsonb_object_keys(own.queues)))));
    looks_back  boolean := coalesce(own.look_back_at <= moment, true);
    floors      jsonb := case when coalesce(own.look_back_at <= moment, true) then '{}' else own.floors end;
    turned      boolean := random() < 0.1;
    plain_first boolean := random() < 0.5;
    got         sereno.jobs[] := '{}';
begin
    if own.id is null or own.state <> 'alive' or own.lease_until <= moment then
        raise exception 'session % has no lease: %', session,
            coalesce('it is ' || nullif(own.state, 'alive'), 'it ran out at ' || own.lease_until, 'there is no such session')
            using errcode = 'SR001', hint = 'Stop what it still runs, and open a new one with sereno.open_session.';
    elsif coalesce(most, 0) not between 1 and 1000 or not own.queues ?& wanted or array_position(wanted, null) is not null then
        raise exception 'session % cannot claim % jobs of %', session, most, left(wanted::text, 200)
            using errcode = 'invalid_parameter_value', hint = '1 to 1000, of queues that were named when the session was opened.';
    end if;
    if sereno.has_resumed(own.passed_over) then
        perform sereno.start_over(session);
        floors := '{}';
    end if;
    for round in 1..2 loop
        for step in 1..2 loop
            exit when cardinality(got) = most;
            if (step = 1) = plain_first then
                got := got || array(select job from sereno.claim_plain(
                    session, wanted, own.tasks, most - cardinality(got), floors, turned, looks_back) as job);
            elsif exists (select from sereno.lane_wakes where id >= coalesce((floors ->> 'wakes')::bigint, 0))
               or exists (select from sereno.lane_queues where queue = any(wanted)
                            and (select true from sereno.lanes where has_work and waits_for is null
                                 and lanes.queue = lane_queues.queue limit 1))
               or exists (select from sereno.limits where queue = any(wanted))
               or exists (select from sereno.due_limiters(wanted, moment)) then
                got := got || array(select job from sereno.claim_limited(
                    session, wanted, own.tasks, most - cardinality(got), floors, turned, looks_back) as job);
            end if;
        end loop;
        -- Jobs that have just become due are promoted here, not at the next heartbeat of a session.
        exit when cardinality(got) = most or round = 2 or sereno.promote_due(case when looks_back then 3e9 else 60 end) = 0;
    end loop;
    if clock_timestamp() - began > interval '5 milliseconds' then
        perform sereno.learn_floors(session, array(select id from unnest(got)), looks_back, cardinality(got) = most,
                                    clock_timestamp() - began);
    end if;
    perform sereno.settle_jobs(session, jsonb_agg(jsonb_build_object(
        'id', id, 'attempt', attempt, 'outcome', 'dead', 'reason', case
            when crashes >= 3 then 'crash loop: its worker died while it ran alone, ' || crashes || ' times'
            else 'expired before it could run' end)))
    from unnest(got) where expires_at <= claimed_at or crashes >= 3 having count(*) > 0;
    return query
    select id, attempt, task, args::jsonb, queue, tenant, priority, failures, crashes, trace, run_at, claimed_at, planned_at
    from unnest(got) where (expires_at is null or expires_at > claimed_at) and crashes < 3 order by priority, ready_seq;
end $$;

COMMENT ON FUNCTION sereno.claim_jobs(session bigint, queues text[], most integer) IS 'Claim up to "most" ready jobs of these queues, or of all queues of the session. One row for each job. Raises SR001 when the session has no lease.';

CREATE TABLE sereno.clock (
    one_row boolean DEFAULT true NOT NULL,
    ahead interval NOT NULL,
    CONSTRAINT clock_one_row_check CHECK (one_row)
);

CREATE FUNCTION sereno.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (statement_timestamp() + COALESCE(( SELECT clock.ahead
            FROM sereno.clock), '00:00:00'::interval));
END;

COMMENT ON FUNCTION sereno.now() IS 'The clock that decides: the start of the statement by the clock of PostgreSQL, unless a test has moved it by a row in sereno.clock.';

CREATE TABLE sereno.jobs (
    id bigint NOT NULL,
    ready_seq bigint,
    session_id bigint,
    run_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    claimed_at timestamp with time zone,
    expires_at timestamp with time zone,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    snoozes integer DEFAULT 0 NOT NULL,
    releases integer DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 5 NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    state text NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    task text NOT NULL,
    tenant text,
    unique_key text,
    trace text,
    tags text[],
    args sereno.arguments DEFAULT '{}'::jsonb NOT NULL,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    lane bigint,
    order_id bigint,
    keys jsonb,
    group_id bigint,
    pending integer,
    has_successors boolean,
    links jsonb,
    requires jsonb,
    CONSTRAINT jobs_dates CHECK (((run_at > '1900-01-01 00:00:00+00'::timestamp with time zone) AND (run_at < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT jobs_lane_keys CHECK (((lane IS NULL) = (keys IS NULL))),
    CONSTRAINT jobs_priority CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT jobs_state CHECK ((((state = 'running'::text) AND (session_id IS NOT NULL) AND (attempt > 0)) OR ((state = 'ready'::text) AND (session_id IS NULL) AND (ready_seq IS NOT NULL)) OR ((state = 'scheduled'::text) AND (session_id IS NULL)) OR ((state = 'waiting'::text) AND (session_id IS NULL) AND (pending > 0)))),
    CONSTRAINT jobs_tags CHECK (((tags IS NULL) OR sereno.are_tags(tags)))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION sereno.claim_limited(for_session bigint, wanted text[], known_tasks text[], most integer, floors jsonb, turned boolean, looks_back boolean DEFAULT false) RETURNS SETOF sereno.jobs
    LANGUAGE plpgsql
    AS $$
declare
    opened      json := sereno.open_lanes(coalesce((floors ->> 'wakes')::bigint, 0));
    made        boolean := false;
    taken_json  json;
    limiters    sereno.taken_limiter[];
    lanes       sereno.taken_lane[];
    ids         bigint[];
    numbers     bigint[];
    stops       jsonb;
    passing     bigint[];
    walks       integer := 0;
    plain       bigint[];
    which       integer;
begin
    perform sereno.keep_moving();
    while most > 0 loop
        taken_json := sereno.take_lanes((
            select jsonb_agg(jsonb_build_object(
                'queue', queue, 'now', most, 'slots', most, 'lanes', most,
                'floors', (select jsonb_agg(jsonb_build_object(
                               'priority', level, 'floor', coalesce((floors ->> (queue || ':' || level))::bigint, 0)))
                           from generate_series(0, 9) as level),
                'bands', (select jsonb_agg(jsonb_build_object('band', level, 'after', 0) order by place)
                          from (select level, case when turned then -level else level end as place
                                from generate_series(0, 9) as level) as step)))
            from unnest(wanted) as queue), '[]');
        limiters := sereno.read_limiters(taken_json);
        lanes := sereno.read_lanes(taken_json, coalesce((select array_agg(id) from unnest(limiters)), '{}'));
        select given.lanes, given.limiters into lanes, limiters from sereno.give_turns(lanes, limiters, most, turned) as given;
        select picked.ids, picked.numbers, picked.stops, picked.passing into ids, numbers, stops, passing
        from sereno.pick_limited(
            lanes, known_tasks, (select capabilities from sereno.sessions where id = for_session)) as picked;
        -- The jobs without keys of a queue with a limit of its own.
        for which in select ordinality from unnest(lanes) with ordinality where id is null and gives > 0 loop
            plain := sereno.pick_plain(
                for_session, array[lanes[which].queue], known_tasks, lanes[which].gives, floors, looks_back, turned);
            ids := ids || plain;
            numbers := numbers || array_fill(which::bigint, array[cardinality(plain)]);
        end loop;
        perform sereno.write_limited((taken_json ->> 0)::timestamptz, lanes, limiters, ids, numbers, stops);
        if stops is not null or passing is not null then
            perform sereno.mark_passed_over(
                array(select lane.id from unnest(lanes) with ordinality as lane
                      where stops ? ordinality::text or ordinality = any(passing)));
        end if;
        return query select * from sereno.mark_claimed(for_session, ids, (taken_json ->> 0)::timestamptz);
        if (taken_json ->> 8)::boolean and not made then
            -- Limiters are missing: of new limits, or deleted while unused.
            perform sereno.make_limiters(array(select (each ->> 0)::bigint from json_array_elements(taken_json -> 2) as each), wanted);
            made := true;
        elsif coalesce(cardinality(ids), 0) = 0 then
            -- There may be more jobs behind those that were passed over.
            walks := walks + 1;
            exit when stops is null or walks = 5;
        end if;
        most := most - coalesce(cardinality(ids), 0);
    end loop;
end $$;

CREATE FUNCTION sereno.claim_plain(for_session bigint, wanted text[], known_tasks text[], most integer, floors jsonb, turned boolean, looks_back boolean DEFAULT false) RETURNS SETOF sereno.jobs
    LANGUAGE plpgsql
    AS $$
declare
    open_queues  text[] := array(
        select served.name from unnest(wanted) as served(name)
        where served.name <> all(array(select pauses.name from sereno.pauses where kind = 'queue'))
          and served.name <> all(array(select queue from sereno.limits where queue is not null)));
begin
    return query select * from sereno.mark_claimed(
        for_session, sereno.pick_plain(for_session, open_queues, known_tasks, most, floors, looks_back, turned));
end $$;

CREATE FUNCTION sereno.clock_now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (clock_timestamp() + COALESCE(( SELECT clock.ahead
            FROM sereno.clock), '00:00:00'::interval));
END;

CREATE FUNCTION sereno.close_session(session bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
    own    sereno.sessions := sereno.own_session(session);
    given  integer;
begin
    update sereno.sessions set state = 'closed', idle = false, ended_at = sereno.now() where id = own.id and state = 'alive';
    select count(*) filter (where owner = session) into given from sereno.release_lost_jobs() as owner;
    perform sereno.add_figures();
    return given;
end $$;

COMMENT ON FUNCTION sereno.close_session(session bigint) IS 'Close a session: jobs that it holds are released. Returns their number.';

CREATE FUNCTION sereno.complete_group(made_group bigint, then_id bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    parts   integer;
    number  bigint;
begin
    insert into sereno.group_parts (group_id, part, remaining)
    select made_group, sereno.group_part(id), count(*) from sereno.jobs where group_id = made_group group by 2;
    select count(*), coalesce(sum(remaining), 0) into parts, number from sereno.group_parts where group_id = made_group;
    update sereno.groups set total = number, then_job = then_id where id = made_group;
    update sereno.jobs
    set links = coalesce(links, '{}') || jsonb_build_object('of', made_group),
        pending = nullif(coalesce(pending, 0) + parts, 0),
        state = case when coalesce(pending, 0) + parts > 0 then 'waiting' else state end
    where id = then_id;
    return number;
end $$;

CREATE FUNCTION sereno.condition(filter jsonb) RETURNS jsonpath
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    found record;
begin
    if filter is null then
        return null;
    end if;
    select * into found from sereno.condition_object(filter, 1);
    if found.clauses > 100 then
        perform sereno.refuse_filter('the filter has %s clauses, at most 100 are possible', found.clauses::text);
    elsif octet_length(found.path) + 17 > 8192 then
        perform sereno.refuse_filter('the filter takes %s bytes as a jsonpath, at most 8192 are possible',
                                     (octet_length(found.path) + 17)::text);
    end if;
    return case when filter = '{}' then 'true' else 'exists(true ? (' || found.path || '))' end::jsonpath;
end $$;

CREATE FUNCTION sereno.condition_field(key text, tests text[], joint text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
    parts  text[] := string_to_array(key, '.');
    path   text := (select '$' || string_agg('.' || to_json(part)::text, '' order by n)
                    from unnest(parts) with ordinality as p(part, n));
begin
    if '' = any(parts) or cardinality(parts) not between 1 and 10 then
        perform sereno.refuse_filter('"%s" names nothing in a payload: write "region" or "buyer.city", at most 10 names', key);
    elsif cardinality(tests) = 1 then
        return path || ' ' || tests[1];
    end if;
    -- A comparison would unwrap a list inside the list, and each test might match another element there.
    return format('exists(%s ? (@.type() != "array" && (@ %s)))', path, array_to_string(tests, ' ' || joint || ' @ '));
end $_$;

CREATE FUNCTION sereno.condition_object(wanted jsonb, depth integer, OUT path text, OUT clauses integer) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    key    text;
    value  jsonb;
    part   text;
    inner_clauses integer;
begin
    clauses := 0;
    if jsonb_typeof(wanted) <> 'object' then
        perform sereno.refuse_filter('a filter is an object, not %s', wanted::text);
    elsif wanted = '{}' and depth > 1 then
        perform sereno.refuse_filter('an empty filter in "not" or "any" says nothing: fill it in, or leave it out');
    elsif depth > 5 then
        perform sereno.refuse_filter('the filter is nested more than 5 deep: write it with fewer not and any');
    end if;
    for key, value in select * from jsonb_each(wanted) loop
        inner_clauses := 1;
        if key = 'not' then
            select '!exists(true ? (' || o.path || '))', o.clauses + 1 into part, inner_clauses
            from sereno.condition_object(value, depth + 1) as o;
        elsif key = 'any' then
            if jsonb_typeof(value) <> 'array' or value = '[]' then
                perform sereno.refuse_filter('"any" needs a list of filters, at least one, not %s', value::text);
            end if;
            select string_agg('(' || o.path || ')', ' || ' order by n), sum(o.clauses) into part, inner_clauses
            from jsonb_array_elements(value) with ordinality as e(each, n), sereno.condition_object(each, depth + 1) as o;
        elsif value = '{"exists": false}' then
            part := '!exists(true ? (' || sereno.condition_field(key, '{!= null}', '&&') || '))';
            inner_clauses := 2;
        elsif jsonb_typeof(value) = 'object' then
            part := sereno.condition_field(key, sereno.condition_tests(key, value), '&&');
        elsif value = '[]' then
            perform sereno.refuse_filter('"%s" is one of nothing: name at least one value, or leave it out', key);
        else
            part := sereno.condition_field(
                key, (select array_agg('== ' || sereno.condition_value(key, each) order by n)
                      from jsonb_array_elements(case jsonb_typeof(value) when 'array' then value else jsonb_build_array(value) end)
                           with ordinality as e(each, n)), '||');
        end if;
        path := concat_ws(' && ', path, '(' || part || ')');
        clauses := clauses + inner_clauses;
    end loop;
end $$;

CREATE FUNCTION sereno.condition_tests(key text, tests jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    name   text;
    value  jsonb;
    low    jsonb := tests -> 'min';
    high   jsonb := tests -> 'max';
    found  text[] := '{}';
begin
    for name, value in select * from jsonb_each(tests) loop
        if name in ('min', 'max') and jsonb_typeof(value) in ('string', 'number') then
            found := found || (case name when 'min' then '>= ' else '<= ' end || sereno.condition_value(key, value));
        elsif name = 'contains' and jsonb_typeof(value) = 'string' and length(value #>> '{}') between 1 and 200 then
            found := found || ('like_regex ' || to_json(sereno.in_any_case(value #>> '{}'))::text);
        elsif name = 'exists' and value = 'true' then
            found := found || '!= null'::text;
        elsif name in ('min', 'max', 'contains', 'exists') then
            perform sereno.refuse_filter(
                '"%s": %s is %s, not %s', key, name, case name when 'contains' then 'a text of 1 to 200 characters'
                when 'exists' then 'true, or false without another test' else 'a number or a text' end, value::text);
        else
            perform sereno.refuse_filter('"%s": there is no test "%s": write min, max, contains or exists', key, name);
        end if;
    end loop;
    if jsonb_typeof(low) <> jsonb_typeof(high)
       or (case jsonb_typeof(low) when 'number' then low::numeric > high::numeric
                else (low #>> '{}') collate "C" > (high #>> '{}') collate "C" end) then
        perform sereno.refuse_filter('"%s": min and max are two numbers or two texts, min the smaller one', key);
    elsif found = '{}' then
        perform sereno.refuse_filter('"%s" has no test: write {"exists": true} or leave it out', key);
    end if;
    return found;
end $$;

CREATE FUNCTION sereno.condition_value(key text, value jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if jsonb_typeof(value) in ('array', 'object') then
        perform sereno.refuse_filter('"%s" is compared with a text, a number, true, false or null, not %s', key, value::text);
    elsif jsonb_typeof(value) = 'number' and length(value::text) > 300 and abs(value::numeric) >= 2::numeric ^ 1024 then
        perform sereno.refuse_filter('"%s": a number of at most 1024 bits can be compared', key);
    end if;
    return value::text;
end $$;

CREATE FUNCTION sereno.count_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamp with time zone, to_at timestamp with time zone, OUT matched bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    AS $$
begin
    perform sereno.hold_table(of_batch);
    execute 'select count(*) from ' || sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at) into matched;
end $$;

CREATE FUNCTION sereno.count_members(ids bigint[], group_ids bigint[], parts smallint[], numbers bigint[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    counted  bigint;
begin
    if exists (select from sereno.dependencies where predecessor = any(ids)) then
        return false;
    end if;
    with fewer as materialized (
        select * from unnest(group_ids, parts, numbers) as f(group_id, part, number)
    ),
    locked as materialized (
        select group_id, part, remaining from sereno.group_parts
        where group_id = any(group_ids) and part = any(parts)
        order by group_id, part for update
    ),
    open as materialized (
        select fewer.* from fewer join locked using (group_id, part) where locked.remaining > fewer.number
    ),
    lowered as (
        update sereno.group_parts p set remaining = p.remaining - open.number, counted_at = sereno.now()
        from open
        where p.group_id = any(group_ids) and p.group_id = open.group_id and p.part = open.part
          and (select count(*) from open) = cardinality(group_ids)
        returning 1
    )
    select count(*) into counted from lowered;
    return counted > 0;
end $$;

CREATE FUNCTION sereno.digest_key(type text, field text, payload jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    value jsonb := payload -> field;
begin
    if field is null then
        return type;
    elsif jsonb_typeof(value) in ('array', 'object') then
        raise exception 'events of type % are collected by the field "%", which is an % here', type, field, jsonb_typeof(value)
            using errcode = 'invalid_parameter_value', hint = 'It must be a text, a number, true, false or null.';
    end if;
    return left(type || ':' || case coalesce(jsonb_typeof(value), 'null')
        when 'null' then 'None'
        when 'boolean' then initcap(value::text)
        when 'number' then sereno.digest_number(value::text)
        when 'string' then value #>> '{}'
    end, 500);
end $$;

CREATE FUNCTION sereno.digest_number(value text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET extra_float_digits TO '1'
    AS $_$
declare
    parts   text[];
    digits  text;
    point   integer;
begin
    if strpos(value, '.') = 0 then
        return value;
    end if;
    parts := regexp_match(value::double precision::text, '^(-?)([0-9]+)\.?([0-9]*)(?:e([-+][0-9]+))?$');
    -- The significant digits, and how many of them are before the decimal point.
    digits := ltrim(parts[2] || parts[3], '0');
    point := length(parts[2]) + coalesce(parts[4], '0')::integer - (length(parts[2] || parts[3]) - length(digits));
    digits := rtrim(digits, '0');
    if digits = '' then
        return parts[1] || '0.0';
    elsif point > 16 or point < -3 then
        return parts[1] || left(digits, 1) || case when length(digits) > 1 then '.' || substr(digits, 2) else '' end
               || 'e' || case when point > 0 then '+' else '-' end
               || case when abs(point - 1) < 10 then '0' else '' end || abs(point - 1);
    elsif point <= 0 then
        return parts[1] || '0.' || repeat('0', -point) || digits;
    end if;
    return parts[1] || rpad(left(digits, point), point, '0') || '.' || coalesce(nullif(substr(digits, point + 1), ''), '0');
end $_$;

CREATE FUNCTION sereno.drop_attempts_partition(name text) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $_$
begin
    if name !~ '^attempts_[0-9]{8}$' then
        raise exception '% is not a partition of the attempts', name;
    end if;
    if to_regclass(format('sereno.%I', 'history_done_' || right(name, 8))) is not null then
        raise exception 'the history of % has to be dropped first', name using errcode = 'object_in_use';
    end if;
    execute format('drop table sereno.%I', name);
end $_$;

CREATE FUNCTION sereno.drop_batch(of_batch bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $$
declare
    held sereno.archive_batches;
    filed record;
begin
    -- Locked, so that two callers do not drop the same table.
    select * into held from sereno.archive_batches where id = of_batch for update;
    if held.id is null or held.dropped_at is not null or not held.children_moved
       or held.drop_eligible_at is null or held.drop_eligible_at > sereno.now() then
        return false;
    end if;
    execute format('lock table sereno_archive.%I in access exclusive mode', held.held_in);
    select sum(file.rows) as rows, sum(found.rows) as counted,
           bool_and(file.verified_at is not null and file.failed_at is null and file.rows = found.rows
                    and file.keys_hash = found.keys_hash and file.content_hash = found.content_hash) as is_same
    into filed
    from sereno.archive_files as file cross join lateral sereno.measure_file(of_batch, file.number) as found
    where batch_id = of_batch;
    if filed.is_same is not true then
        raise exception 'the files of batch % do not hold the rows of %: nothing is dropped', of_batch, held.held_in
            using errcode = 'data_exception',
                  hint = format('Files: %s rows; table: %s rows. Run: sereno archive verify', coalesce(filed.rows, 0), coalesce(filed.counted, 0));
    end if;
    execute format('drop table sereno_archive.%I', held.held_in);
    update sereno.archive_batches set dropped_at = sereno.now(), held_in = null, error = null where id = of_batch;
    return true;
end $$;

CREATE FUNCTION sereno.drop_fires_partition(name text) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $_$
begin
    if name !~ '^fires_[0-9]{8}$' then
        raise exception '% is not a partition of the fires', name;
    end if;
    execute format('drop table sereno.%I', name);
end $_$;

CREATE FUNCTION sereno.drop_history_partition(name text) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $_$
begin
    if name !~ '^history_done_[0-9]{8}$' then
        raise exception '% is not a partition of the history', name;
    end if;
    execute format('drop table sereno.%I', name);
end $_$;

CREATE FUNCTION sereno.due_limiters(queues text[], moment timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    select due.id
    from (select id, limit_name from sereno.limiters where check_at <= moment order by check_at limit 5000) as due
    left join sereno.limits on limits.name = due.limit_name
    where (limits.queue is null or limits.queue = any(queues))
      and ((select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
           or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null)
    limit 100
    $$;

CREATE FUNCTION sereno.effect_of(state text, on_dead text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when state = 'succeeded' or on_dead = 'continue' then 'counts'
                when state = 'dead' and on_dead = 'wait' then 'waits'
                else 'breaks' end
$$;

CREATE FUNCTION sereno.emit(session bigint, id bigint, attempt integer, chunks jsonb, first integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    own     sereno.sessions := sereno.own_session(session);
    moment  timestamptz := sereno.clock_now();
    size    bigint := octet_length(chunks::text);
    count   integer;
    last    integer;
    stored  bigint;
    wrong   text;
begin
    if coalesce(jsonb_typeof(chunks), 'null') <> 'array' or chunks = '[]' or size > 65536 then
        raise exception 'job %: chunks are a list of 1 or more JSON values, at most 64 KiB together', emit.id
            using errcode = 'invalid_parameter_value', hint = 'Such as [{"text": "Hello"}]; emit more of them in several calls.';
    end if;
    perform from sereno.jobs
    where jobs.id = emit.id and jobs.attempt = emit.attempt and session_id = session
      and own.state = 'alive' and own.lease_until > moment
    for update;
    if not found then
        return null;
    end if;
    count := jsonb_array_length(chunks);
    select max(number) into last from sereno.job_chunks where job_id = emit.id and job_chunks.attempt = emit.attempt;
    last := coalesce(last, 0);
    if first <= last and exists (
        select from sereno.job_chunks c
        where c.job_id = emit.id and c.attempt = emit.attempt and c.number = first + count - 1
          and jsonb_array_length(c.chunks) = count) then
        return first + count - 1;
    end if;
    select bytes into stored from sereno.job_streams where job_id = emit.id and job_streams.attempt = emit.attempt;
    if first <> last + 1 then
        wrong := format('its next chunk has the number %s, not %s', last + 1, first);
    elsif last + count > 10000 or coalesce(stored, 0) + size > 4194304 then
        wrong := 'an attempt can emit 10000 chunks with 4 MiB together';
    end if;
    if wrong is not null then
        raise exception 'job %: %', emit.id, wrong using errcode = 'invalid_parameter_value', hint = 'Nothing was stored.';
    end if;
    insert into sereno.job_chunks (job_id, attempt, number, chunks) values (emit.id, emit.attempt, last + count, emit.chunks);
    insert into sereno.job_streams as s (job_id, attempt, bytes) values (emit.id, emit.attempt, size)
    on conflict (job_id) do update
        set attempt = excluded.attempt, ended_at = null,
            bytes = case when s.attempt = excluded.attempt then s.bytes else 0 end + excluded.bytes;
    if last = 0 then
        delete from sereno.job_chunks c where c.job_id = emit.id and c.attempt < emit.attempt;
    end if;
    return last + count;
end $$;

COMMENT ON FUNCTION sereno.emit(session bigint, id bigint, attempt integer, chunks jsonb, first integer) IS 'Store chunks of the output of a running job for those who watch it, and return the number of the last one; null if the session no longer holds the job. first: the number of the first of these chunks, so that the call can be repeated.';

CREATE FUNCTION sereno.end_links(ids bigint[], group_ids bigint[], states text[], settled_by bigint DEFAULT NULL::bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    moment         timestamptz := sereno.now();
    is_ready       boolean := false;
    is_cancelling  boolean;
    counts         bigint[];
    breaks         bigint[];
    reasons        jsonb;
    freed          record;
begin
    while cardinality(ids) > 0 loop
        with ended as materialized (
            select * from unnest(ids, group_ids, states) as e(id, group_id, state)
        ),
        summed as materialized (
            select group_id, sereno.group_part(id) as part, state, count(*) as number, min(id) as id
            from ended where group_id > 0 group by 1, 2, 3
        ),
        known as materialized (
            select id, then_job, on_dead from sereno.groups where id = any(array(select group_id from summed))
        ),
        member as materialized (
            select summed.id, state, group_id, part, number, then_job, on_dead, sereno.effect_of(state, on_dead) as effect
            from summed join known on known.id = group_id
        ),
        fewer as materialized (
            select group_id, part, then_job, sum(number) as number from member where effect = 'counts' group by 1, 2, 3
        ),
        locked as materialized (
            select group_id, part from sereno.group_parts
            where group_id = any(array(select group_id from fewer)) and part = any(array(select part from fewer))
            order by group_id, part for update
        ),
        counted as (
            update sereno.group_parts p set remaining = p.remaining - fewer.number, counted_at = moment
            from fewer join locked using (group_id, part)
            where p.group_id = any(array(select group_id from locked))
              and p.group_id = fewer.group_id and p.part = fewer.part
            returning fewer.then_job, p.remaining
        ),
        stopped as (
            update sereno.groups set cancelling = true
            where id = any(array(select group_id from member where effect = 'breaks' and on_dead = 'cancel'))
            returning id
        ),
        edge as materialized (
            select d.predecessor, d.successor, ended.state,
                   sereno.effect_of(ended.state, (select case when links -> 'calls' @> to_jsonb(d.predecessor) then 'continue'
                                                              else links ->> 'on_dead' end
                                                  from sereno.jobs where jobs.id = d.successor)) as effect
            from sereno.dependencies d join ended on ended.id = d.predecessor
            where d.predecessor = any(ids)
        ),
        over as (
            delete from sereno.dependencies d using edge
            where d.predecessor = any(ids)
              and d.predecessor = edge.predecessor and d.successor = edge.successor and edge.effect <> 'waits'
            returning edge.predecessor, edge.successor, edge.state, edge.effect
        ),
        broken as (
            select predecessor, successor, state from over where effect = 'breaks'
            union all
            select id, then_job, state from member where effect = 'breaks' and then_job is not null
        )
        select array(select successor from over where effect = 'counts'
                     union all
                     select then_job from counted where remaining = 0 and then_job is not null),
               array(select distinct successor from broken),
               (select jsonb_object_agg(successor, reason)
                from (select successor, format('job %s, which it waits for, %s', min(predecessor),
                                               case when min(state) = 'dead' then 'is dead' else 'was cancelled' end) as reason
                      from broken group by successor) as why),
               exists (select from stopped)
        into counts, breaks, reasons, is_cancelling;
        if is_cancelling and coalesce(current_setting('sereno.notify', true), '') <> 'off' then
            -- No job has this id: maintenance looks at once.
            perform pg_notify('sereno.linked', '0');
        end if;
        ids := '{}';
        exit when cardinality(counts) = 0 and cardinality(breaks) = 0;

        perform from sereno.jobs where id = any(counts || breaks) and state = 'waiting' order by id for update;
        for freed in
            with number as materialized (
                select successor, count(*)::integer as number from unnest(counts) as successor group by 1
            ),
            moved as (
                update sereno.jobs
                set pending = nullif(jobs.pending - number.number, 0),
                    state = case when jobs.pending > number.number then 'waiting'
                                 when jobs.run_at <= moment then 'ready' else 'scheduled' end,
                    ready_seq = case when jobs.pending <= number.number and jobs.run_at <= moment
                                     then nextval('sereno.ready_seq') end,
                    has_successors = jobs.has_successors
                                     or (select true from sereno.dependencies where predecessor = jobs.id limit 1)
                from number
                where jobs.id = any(counts) and jobs.id = number.successor and jobs.state = 'waiting'
                  and jobs.id <> all(breaks)
                returning jobs.queue, jobs.state, jobs.run_at
            )
            select queue, min(extract(epoch from run_at - moment))::double precision as due_in
            from moved where state <> 'waiting' group by queue, state
        loop
            perform sereno.notify_ready(freed.queue, greatest(0, freed.due_in), settled_by);
            is_ready := is_ready or freed.due_in <= 0;
        end loop;
        exit when cardinality(breaks) = 0;

        with gone as (
            delete from sereno.jobs where id = any(breaks) and state = 'waiting' returning *
        ),
        recorded as (
            insert into sereno.history (
                id, finished_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority, state,
                queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id,
                links, reason)
            select id, moment, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority,
                   'cancelled', queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys,
                   requires, group_id, links, reasons ->> id::text
            from gone
        ),
        ended as (
            insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
            select schedule_id, id, 'cancelled', moment, reasons ->> id::text from gone where schedule_id is not null
        ),
        forgotten as (delete from sereno.steps where job_id = any(array(select id from gone))),
        cleared as (delete from sereno.progress where job_id = any(array(select id from gone)))
        select array_agg(id), array_agg(coalesce(group_id, 0)), array_agg('cancelled'::text)
        into ids, group_ids, states from gone;
        perform sereno.notify_finished(ids) where exists (select from sereno.waiters);
    end loop;
    return is_ready;
end $$;

CREATE FUNCTION sereno.enqueue(task text, args jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'default'::text, priority integer DEFAULT 5, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tenant text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tags text[] DEFAULT NULL::text[], trace text DEFAULT NULL::text, after bigint[] DEFAULT NULL::bigint[], on_dead text DEFAULT 'wait'::text, requires jsonb DEFAULT NULL::jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz := sereno.clock_now();
    due    timestamptz := coalesce(run_at, moment);
    made   bigint;
    keys   jsonb := sereno.keys_for(task, queue, tenant, args);
begin
    perform sereno.check_task(task);
    if not sereno.are_tags(tags) then
        raise exception 'task "%": tags are at most 50 texts of 1 to 200 characters', left(task, 60)
            using errcode = 'invalid_parameter_value', hint = 'Put longer texts into the arguments.';
    end if;
    if on_dead not in ('wait', 'continue', 'cancel') then
        raise exception 'task "%": on_dead is wait, continue or cancel, not %', left(task, 60), left(on_dead, 60)
            using errcode = 'invalid_parameter_value';
    end if;
    if requires is not null then
        perform sereno.check_requires(task, requires);
    end if;
    if unique_key is not null and after is not null then
        raise exception 'task "%": after and unique_key exclude each other', left(task, 60)
            using errcode = 'invalid_parameter_value', hint = 'A job that exists already cannot wait for others.';
    end if;
    if unique_key is not null then
        return (sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
            'task', task, 'args', args, 'queue', queue, 'priority', priority, 'run_at', run_at, 'tenant', tenant,
            'unique_key', unique_key, 'expires_at', expires_at, 'tags', tags, 'trace', trace,
            'keys', keys, 'requires', nullif(requires, '{}')))) -> 0 ->> 'id')::bigint;
    end if;
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, created_at,
                             keys, requires, lane, order_id, state, ready_seq)
    values (enqueue.task, enqueue.args, enqueue.queue, enqueue.priority, due, enqueue.tenant, enqueue.expires_at,
            enqueue.tags, enqueue.trace, moment, keys, nullif(enqueue.requires, '{}'),
            case when keys is not null then sereno.lane_of(enqueue.queue, keys) end,
            case when keys is not null then sereno.order_of(enqueue.queue, keys) end,
            case when due <= moment then 'ready' else 'scheduled' end,
            case when due <= moment then nextval('sereno.ready_seq') end)
    returning id into made;
    if after is not null then
        perform sereno.make_waiting(jsonb_build_array(jsonb_build_object('id', made, 'after', after, 'on_dead', on_dead)));
    end if;
    perform sereno.notify_ready(enqueue.queue, extract(epoch from due - moment));
    return made;
end $$;

COMMENT ON FUNCTION sereno.enqueue(task text, args jsonb, queue text, priority integer, run_at timestamp with time zone, tenant text, unique_key text, expires_at timestamp with time zone, tags text[], trace text, after bigint[], on_dead text, requires jsonb) IS 'Create a job in the current transaction, and return its id. With a unique_key that a live job has, return the id of that job. The queue and the priority that the task declares in Python are not known here; its limits, fair and order keys are. run_at: not before then. expires_at: cancelled if it has not started by then. after: ids of jobs that it waits for; on_dead: what a dead one of them means, wait, continue or cancel. requires: what a worker must have, such as {"version": 2} of the task or {"key": "2026b"}.';

CREATE FUNCTION sereno.enqueue_keyed(jobs jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
    moment   timestamptz := sereno.clock_now();
    wanted   record;
    due      timestamptz;
    new_id   bigint;
    found_id bigint;
    its_queue text;
    results  jsonb[] := '{}';
begin
    for wanted in
        select * from rows from (jsonb_to_recordset(jobs) as (
            task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
            tenant text, expires_at timestamptz, tags text[], trace text, unique_key text, on_conflict text,
            unique_for double precision, unique_forever boolean, keys jsonb, by_rules boolean,
            requires jsonb)) with ordinality
        order by task, unique_key, tenant, ordinality
    loop
        if wanted.keys is null and wanted.by_rules then
            wanted.keys := sereno.keys_for(wanted.task, wanted.queue, wanted.tenant, wanted.args);
        end if;
        due := coalesce(wanted.run_at, moment + make_interval(secs => coalesce(wanted.delay, 0)));
        loop
            new_id := nextval(pg_get_serial_sequence('sereno.jobs', 'id'));
            found_id := null;
            if wanted.unique_for is not null or wanted.unique_forever then
                insert into sereno.unique_keys as held (task, unique_key, tenant, job_id, until)
                values (wanted.task, wanted.unique_key, wanted.tenant, new_id,
                        case when wanted.unique_forever then 'infinity'
                             else moment + make_interval(secs => wanted.unique_for) end)
                on conflict on constraint unique_keys_key do update
                    set job_id = excluded.job_id, until = excluded.until
                    where held.until <= moment
                returning job_id into found_id;
                if found_id is null then
                    select job_id into found_id from sereno.unique_keys held
                    where held.task = wanted.task and held.unique_key = wanted.unique_key
                      and held.tenant is not distinct from wanted.tenant;
                    -- The key expired and was deleted in between: try again.
                    continue when found_id is null;
                end if;
            end if;
            if found_id is null or found_id = new_id then
                insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, expires_at, tags, trace,
                                         created_at, unique_key, keys, requires, lane, order_id, state, ready_seq)
                values (new_id, wanted.task, coalesce(wanted.args, '{}'), coalesce(wanted.queue, 'default'),
                        coalesce(wanted.priority, 5), due, wanted.tenant, wanted.expires_at, wanted.tags,
                        wanted.trace, moment, wanted.unique_key, wanted.keys, wanted.requires,
                        case when wanted.keys is not null
                             then sereno.lane_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when wanted.keys is not null
                             then sereno.order_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when due <= moment then 'ready' else 'scheduled' end,
                        case when due <= moment then nextval('sereno.ready_seq') end)
                on conflict (task, unique_key, tenant) where unique_key is not null do nothing
                returning id into found_id;
                if found_id = new_id then
                    perform sereno.notify_ready(coalesce(wanted.queue, 'default'), extract(epoch from due - moment));
                    results[wanted.ordinality] := jsonb_build_object('id', new_id, 'created', true);
                    exit;
                end if;
                -- A live job has the key. While it waits, lock it, so that it runs after this transaction commits and
                -- sees its changes. Never lock a running job: its worker, and everything that it settles in the same
                -- batch, would wait for this transaction.
                select id into found_id from sereno.jobs live
                where live.task = wanted.task and live.unique_key = wanted.unique_key
                  and live.tenant is not distinct from wanted.tenant and live.state in ('scheduled', 'ready')
                for update;
                if found_id is null then
                    select id into found_id from sereno.jobs live
                    where live.task = wanted.task and live.unique_key = wanted.unique_key
                      and live.tenant is not distinct from wanted.tenant;
                    -- The job finished in between, so the key is free again: try again.
                    continue when found_id is null;
                end if;
                update sereno.unique_keys held set job_id = found_id
                where held.task = wanted.task and held.unique_key = wanted.unique_key
                  and held.tenant is not distinct from wanted.tenant and held.job_id = new_id;
            end if;
            if wanted.on_conflict = 'replace' then
                update sereno.jobs
                set args = coalesce(wanted.args, '{}'), run_at = due, priority = coalesce(wanted.priority, 5),
                    state = case when due <= moment then 'ready' else 'scheduled' end,
                    ready_seq = case when due <= moment then nextval('sereno.ready_seq') end,
                    keys = wanted.keys, requires = wanted.requires,
                    lane = case when wanted.keys is not null then sereno.lane_of(jobs.queue, wanted.keys) end,
                    order_id = case when wanted.keys is not null then sereno.order_of(jobs.queue, wanted.keys) end
                where id = found_id and state in ('scheduled', 'ready')
                returning queue into its_queue;
                if found then
                    perform sereno.notify_ready(its_queue, extract(epoch from due - moment));
                end if;
            end if;
            results[wanted.ordinality] := jsonb_build_object('id', found_id, 'created', false);
            exit;
        end loop;
    end loop;
    return to_jsonb(results);
end $$;

CREATE FUNCTION sereno.failed_states() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select '{bounced,failed,invalid,expired,dead,unknown}'::text[] $$;

CREATE TABLE sereno.ended_attempts (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    tenant text,
    outcome text NOT NULL,
    waited double precision NOT NULL,
    ran double precision NOT NULL,
    failures integer NOT NULL,
    job_id bigint NOT NULL,
    fingerprint text,
    error_type text,
    message text,
    frame text
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.minutes (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    succeeded integer DEFAULT 0 NOT NULL,
    retried integer DEFAULT 0 NOT NULL,
    dead integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    other integer DEFAULT 0 NOT NULL,
    waits integer[] NOT NULL,
    runs integer[] NOT NULL,
    run_seconds double precision DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');

CREATE FUNCTION sereno.figures_of(lines sereno.ended_attempts[], step interval) RETURNS SETOF sereno.minutes
    LANGUAGE sql STABLE
    AS $$
    select date_bin(step, at, 'epoch'), queue, task, count(*) filter (where outcome = 'succeeded'),
           count(*) filter (where outcome in ('retry', 'crash')), count(*) filter (where outcome = 'dead'),
           count(*) filter (where outcome = 'cancelled'), count(*) filter (where outcome in ('snooze', 'release')),
           sereno.sum_of(sereno.bucket(waited)), sereno.sum_of(sereno.bucket(ran)), sum(ran)
    from unnest(lines) group by 1, 2, 3 order by 1, 2, 3
    $$;

CREATE FUNCTION sereno.file_columns(of_batch bigint, of_number integer) RETURNS TABLE(place smallint, name text, type text, nulls text, value text, digest text, fields text, is_rising boolean)
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    held sereno.archive_batches;
    source text;
    counts bigint[];
begin
    select * into strict held from sereno.archive_batches where id = of_batch;
    select format('sereno_archive.%I', held.held_in) into source;
    -- An expression of a type with a cast of its own may be null where the column is not.
    execute (
        select format('select array[%s] from %s%s', string_agg(case
                   when attnotnull then 'count(*)'
                   when sereno.has_own_cast(atttypid) then format('count(%s)', sereno.text_of(attname, atttypid))
                   else format('count(%I)', attname) end, ', ' order by attnum),
               source, (select sereno.part_of_table(first_block, last_block) from sereno.archive_files where batch_id = of_batch and number = of_number))
        from (select null as attname, true as attnotnull, null::oid as atttypid, 0 as attnum
              union all select attname, attnotnull, atttypid, attnum from pg_attribute
              where attrelid = source::regclass and attnum > 0 and not attisdropped) as counted)
    into counts;
    return query
    select attnum, attname::text, case when send is not null then type_name when is_bytes then 'bytea' else 'text' end,
           has.nulls, format('%s as value_%s', expression, attnum),
           case when has.nulls = 'all' and send is not null then 'sha256(convert_to(repeat(E''\x1e'', count(*)::integer), ''UTF8''))'
                when has.nulls = 'all' then 'sha256(convert_to(repeat(E''\x1e\x1f'', count(*)::integer - 1) || E''\x1e'', ''UTF8''))'
                when send is not null or is_bytes then format('sha256(%s)', joined)
                else format('sha256(convert_to(%s, ''UTF8''))', joined) end,
           case when has.nulls = 'all' or is_bytes then null
                when send is not null and has.nulls = 'none' then joined
                when send is not null then format('%s, string_agg(case when value_%s is null then ''0'' else ''1'' end, '''')', joined, attnum)
                -- The number of nulls, or null if the length tells that a value was replaced.
                else format('%1$s, case when octet_length(%1$s) = coalesce(sum(octet_length(value_%2$s)), 0) + 2 * count(*) - 1 - count(value_%2$s) '
                            'then count(*) - count(value_%2$s) end', joined, attnum) end,
           is_native and (atttypid in ('timestamptz'::regtype, 'timestamp'::regtype)
               or (attname = any(held.key_columns) and atttypid in ('int4'::regtype, 'int8'::regtype)))
    from (select *, row_number() over (order by attnum) as counted from pg_attribute
          where attrelid = source::regclass and attnum > 0 and not attisdropped) as found
    cross join lateral (select sereno.is_native(attribute, held.key_columns, held.as_texts) from pg_attribute as attribute
                        where attribute.attrelid = found.attrelid and attribute.attnum = found.attnum) as known (is_native)
    cross join lateral (select case
        when not is_native then sereno.text_of(attname, atttypid)
        -- char(n), with its trailing blanks.
        when atttypid = 'bpchar'::regtype then format('textin(bpcharout(%I))', attname)
        else quote_ident(attname) end,
        is_native and atttypid = 'bytea'::regtype) as written (expression, is_bytes)
    cross join lateral (select case counts[counted + 1] when counts[1] then 'none' when 0 then 'all' else 'some' end) as has (nulls)
    left join (values ('int2', 'int2send'), ('int4', 'int4send'), ('int8', 'int8send'), ('float4', 'float4send'), ('float8', 'float8send'),
                      ('bool', 'boolsend'), ('date', 'date_send'), ('timestamp', 'timestamp_send'), ('timestamptz', 'timestamptz_send')
              ) as fixed (type_name, send) on is_native and atttypid = type_name::regtype
    cross join lateral (select format(case
        when send is not null and has.nulls = 'none' then 'string_agg(%1$s(value_%2$s), '''')'
        when send is not null then 'string_agg(coalesce(%1$s(value_%2$s), ''\x1e''), '''')'
        when is_bytes then
            'string_agg(case when octet_length(value_%2$s) > 2000 then convert_to(encode(sha256(value_%2$s), ''hex''), ''UTF8'') '
            'else coalesce(value_%2$s, ''\x1e'') end, ''\x1f'')'
        else
            'string_agg(case when octet_length(value_%2$s) > 2000 then encode(sha256(convert_to(value_%2$s, ''UTF8'')), ''hex'') '
            'else coalesce(value_%2$s, E''\x1e'') end, E''\x1f'')' end, send, attnum)) as aggregated (joined)
    order by attnum;
end $_$;

CREATE FUNCTION sereno.file_query(of_batch bigint, of_number integer, OUT query text, OUT columns jsonb, OUT rising text[]) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    with found as materialized (
        select file_columns.*, format('select %s from sereno_archive.%I as held%s order by %s', value, held_in, sereno.part_of_table(first_block, last_block), keys) as by_rows
        from sereno.archive_batches
        join sereno.archive_files on batch_id = id and number = of_number
        cross join lateral sereno.file_columns(of_batch, of_number)
        cross join lateral (select string_agg(format('held.%I', key), ', ' order by key_place) from unnest(key_columns) with ordinality as named (key, key_place)) as ordered (keys)
        where id = of_batch
    )
    select sereno.page_query(of_batch, of_number, string_agg(value, ', ' order by place) filter (where nulls <> 'all'),
                             format('sha256(%s) as digest, %s', string_agg(digest, ' || ' order by place), string_agg(fields, ', ' order by place))),
           jsonb_agg(jsonb_build_object('name', name, 'type', type, 'nulls', nulls, 'by_rows', by_rows) order by place),
           coalesce(array_agg(name order by place) filter (where is_rising), '{}')
    from found
$$;

CREATE FUNCTION sereno.fill(template text, task text, queue text, tenant text, args jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when octet_length(filled) > 600 or length(filled) > 500 then left(filled, 100) || md5(filled) else filled end
    from sereno.fill_in(template, task, queue, tenant, args) as filled
    $$;

CREATE FUNCTION sereno.fill_in(template text, task text, queue text, tenant text, args jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
    select coalesce(string_agg(
        case part[1]
            when '{tenant}' then coalesce(tenant, '') when '{task}' then task when '{queue}' then queue
            else case when part[1] ~ '^\{[^{}]+\}$' then coalesce(args ->> substr(part[1], 2, length(part[1]) - 2), '')
                      else part[1] end
        end, '' order by number), '')
    from regexp_matches(template, '\{[^{}]+\}|[^{]+|\{', 'g') with ordinality as found(part, number)
    $_$;

CREATE FUNCTION sereno.fingerprint_of(task text, error_type text, message text, frame text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select left(encode(sha256(convert_to(concat_ws(e'\x01', task, error_type, left(words, 200), frame), 'UTF8')), 'hex'), 12)
    from regexp_replace(regexp_replace(left(message, 1000), '"[^"]*"|''[^'']*''|`[^`]*`|\S+@\S+', '<text>', 'g'),
                        '\w*\d[\w.,:-]*', '<id>', 'g') as words
    $$;

CREATE FUNCTION sereno.finite(seconds double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN ((seconds > '-Infinity'::double precision) AND (seconds < 'Infinity'::double precision)) THEN seconds
             ELSE NULL::double precision
         END AS "case";
END;

CREATE FUNCTION sereno.forget_batch(batch bigint, held text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    is_empty boolean;
begin
    delete from sereno.archive_batches where id = batch and held_in = held and rows is null;
    if not found then
        raise exception 'there is no batch % in %', batch, held using errcode = 'undefined_object';
    end if;
    execute format('select not exists (select from sereno_archive.%I)', held) into is_empty;
    if not is_empty then
        raise exception 'batch % contains rows and is not deleted', batch using errcode = 'data_exception';
    end if;
    execute format('drop table sereno_archive.%I', held);
end $$;

CREATE FUNCTION sereno.functions_version() RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$select 1$$;

COMMENT ON FUNCTION sereno.functions_version() IS 'Return the version of the functions for workers in another language.';

CREATE FUNCTION sereno.give_turns(INOUT lanes sereno.taken_lane[], INOUT limiters sereno.taken_limiter[], slots_left integer, turned boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    known    bigint[] := array(select id from unnest(limiters));
    most     integer := greatest(4, 4 * slots_left / greatest(1, cardinality(lanes)));
    number   integer;
    refused  integer;
    limiter  integer;
    cost     double precision;
begin
    while slots_left > 0 loop
        select ordinality into number from unnest(lanes) with ordinality as lane
        where is_open
        order by case when turned then -band else band end,
                 case when fair is null then gives else turn + gives / coalesce(weight, 1) end, turn
        limit 1;
        exit when number is null;
        refused := null;
        for place in 1..cardinality(lanes[number].limiters) loop
            limiter := array_position(known, lanes[number].limiters[place]);
            cost := least(lanes[number].units[place], coalesce(limiters[limiter].burst, 1));
            if limiters[limiter].capacity < cost or (limiters[limiter].kind = 'rate' and limiters[limiter].need is not null)
               or (limiters[limiter].id = lanes[number].order_id and lanes[number].has_head is not true) then
                refused := limiter;
                exit;
            end if;
        end loop;
        if refused is not null then
            limiters[refused].need := coalesce(limiters[refused].need, cost);
            limiters[refused].is_touched := true;
            lanes[number].waits := limiters[refused].id;
            lanes[number].is_open := false;
            continue;
        end if;
        for place in 1..cardinality(lanes[number].limiters) loop
            limiter := array_position(known, lanes[number].limiters[place]);
            limiters[limiter].is_touched := true;
            -- In full: a job that costs more than a burst leaves a debt.
            cost := case when limiters[limiter].kind = 'rate' then lanes[number].units[place] else 1 end;
            limiters[limiter].capacity := limiters[limiter].capacity - cost;
            if limiters[limiter].kind = 'order' then
                -- The next job of the order has to wait from now on.
                limiters[limiter].need := 1;
            end if;
        end loop;
        lanes[number].gives := lanes[number].gives + 1;
        lanes[number].is_open := lanes[number].gives < most;
        slots_left := slots_left - 1;
    end loop;
end $$;

CREATE FUNCTION sereno.group_part(job_id bigint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (((job_id >> 10) & (15)::bigint))::smallint AS int2;
END;

CREATE FUNCTION sereno.hand_over(limiter_ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    left_over bigint[] := array(
        select distinct limiter from unnest(limiter_ids) as limiter
        where (select true from sereno.lanes where has_work and waits_for = limiter limit 1));
    noted bigint[];
begin
    for attempt in 1..10 loop
        exit when cardinality(left_over) = 0;
        perform sereno.keep_moving();
        with free as materialized (
            select id from sereno.limiters where id = any(left_over) order by id for update skip locked
        ),
        due as (update sereno.limiters set check_at = sereno.now() where id = any(array(select id from free)) returning id)
        select array_agg(id) into noted from due;
        if noted is not null and exists (select from sereno.sessions where idle) then
            perform pg_notify('sereno.ready', '');
        end if;
        left_over := array(select id from sereno.limiters where id = any(left_over) and id <> all(coalesce(noted, '{}')));
        if cardinality(left_over) > 0 then
            perform pg_sleep(0.01);
        end if;
    end loop;
end $$;

CREATE FUNCTION sereno.has_own_cast(of_type oid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    with recursive base(type) as (
        values (of_type) union select typbasetype from base join pg_type on pg_type.oid = base.type where typbasetype <> 0
    )
    select exists (select from pg_cast join base on castsource = base.type
                   where casttarget = 'text'::regtype and castmethod = 'f' and castsource >= 16384)
    $$;

CREATE FUNCTION sereno.has_resumed(passed_over jsonb) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ select not (passed_over -> 'paused') <@ sereno.paused_now() $$;

CREATE FUNCTION sereno.heartbeat(session bigint, held bigint[] DEFAULT NULL::bigint[], OUT alive boolean, OUT lease_until timestamp with time zone, OUT cancel bigint[], OUT lost bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    own       sereno.sessions := sereno.own_session(session);
    limiters  bigint[];
begin
    update sereno.sessions set lease_until = sereno.now() + make_interval(secs => own.lease), seen_at = sereno.now()
    where sessions.id = own.id and state = 'alive'
    returning sessions.lease_until into heartbeat.lease_until;
    alive := found;
    cancel := array(select jobs.id from sereno.jobs where jobs.id = any(held) and session_id = session and cancel_requested);
    lost := array(select distinct mine from unnest(held) as mine
                  where mine is not null
                    and (not alive or not exists (select from sereno.jobs where jobs.id = mine and session_id = session)));
    if not alive then
        return;
    end if;
    begin
        if held is not null then
            with unknown as materialized (
                select jobs.id from sereno.jobs
                where state = 'running' and session_id = session and jobs.id <> all(held)
                  and claimed_at <= sereno.now() - make_interval(secs => own.lease / 3)
            ),
            locked as materialized (
                select jobs.id from sereno.jobs
                where jobs.id = any(array(select unknown.id from unknown)) and state = 'running' and session_id = session
                order by jobs.id for update skip locked
            ),
            moved as (
                update sereno.jobs
                set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null, releases = releases + 1
                where jobs.id = any(array(select locked.id from locked))
                returning jobs.queue, jobs.keys
            )
            select array_agg(limiter) into limiters from moved cross join lateral sereno.limiters_of(moved.queue, moved.keys) as limiter;
            perform sereno.hand_over(limiters);
        end if;
        perform sereno.promote_due(3e9), sereno.release_lost_jobs(), sereno.add_figures();
    exception when others then
        raise warning 'the lease of session % was renewed, but the maintenance of this heartbeat failed: %', session, sqlerrm;
    end;
end $$;

COMMENT ON FUNCTION sereno.heartbeat(session bigint, held bigint[], OUT alive boolean, OUT lease_until timestamp with time zone, OUT cancel bigint[], OUT lost bigint[]) IS 'Renew the lease of a session. held: all jobs that the worker holds; others that were claimed longer than a third of the lease ago are released. Returns whether the session is alive, the end of its lease, and of the held jobs those to cancel and those that it has lost.';

CREATE FUNCTION sereno.held_origin(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamp with time zone, to_at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select format('sereno_archive.%I as h where h.ctid >= ''(%s,0)''::tid and h.ctid < ''(%s,0)''::tid', held_in, first_block, last_block)
           || case when numbers is null then '' else format(' and h.%I = any(%L::text[]::%s[])', attname, numbers, format_type(atttypid, -1)) end
           || case when from_at is null then '' else format(' and h.%I::timestamptz >= %L', time_column, from_at) end
           || case when to_at is null then '' else format(' and h.%I::timestamptz < %L', time_column, to_at) end
    from sereno.archive_batches
    join pg_attribute on attrelid = format('sereno_archive.%I', held_in)::regclass and attname = key_columns[1]
    where id = of_batch and dropped_at is null
$$;

CREATE FUNCTION sereno.hold_table(of_batch bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    held text;
begin
    select held_in into held from sereno.archive_batches where id = of_batch;
    if held is not null then
        begin
            execute format('lock table sereno_archive.%I in access share mode', held);
            return;
        exception when undefined_table then
            null;
        end;
    end if;
    raise exception 'batch % was dropped meanwhile', of_batch using errcode = 'object_not_in_prerequisite_state', hint = 'Run it again.';
end $$;

CREATE FUNCTION sereno.in_any_case(wanted text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
    with two_way as materialized (
        select run[n] as first, run[n + 1] as last, run[n + 2] as step, run[n + 3] as shift
        from (values ('{
            65,90,1,32,192,214,1,32,216,222,1,32,255,255,1,121,256,302,2,1,306,310,2,1,313,327,2,1,330,374,2,1,377,381,2,1,
            384,384,1,195,385,385,1,210,386,388,2,1,390,390,1,206,391,391,1,1,393,394,1,205,395,395,1,1,398,398,1,79,399,399,1,202,
            400,400,1,203,401,401,1,1,403,403,1,205,404,404,1,207,405,405,1,97,406,406,1,211,407,407,1,209,408,408,1,1,
            410,410,1,163,412,412,1,211,413,413,1,213,414,414,1,130,415,415,1,214,416,420,2,1,422,422,1,218,423,423,1,1,
            425,425,1,218,428,428,1,1,430,430,1,218,431,431,1,1,433,434,1,217,435,437,2,1,439,439,1,219,440,440,1,1,444,444,1,1,
            447,447,1,56,452,452,1,2,455,455,1,2,458,458,1,2,461,475,2,1,478,494,2,1,497,497,1,2,500,500,1,1,504,542,2,1,
            546,562,2,1,570,570,1,10795,571,571,1,1,574,574,1,10792,575,576,1,10815,577,577,1,1,580,580,1,69,581,581,1,71,
            582,590,2,1,592,592,1,10783,593,593,1,10780,594,594,1,10782,604,604,1,42319,609,609,1,42315,613,613,1,42280,
            614,614,1,42308,618,618,1,42308,619,619,1,10743,620,620,1,42305,625,625,1,10749,637,637,1,10727,642,642,1,42307,
            647,647,1,42282,669,669,1,42261,670,670,1,42258,880,882,2,1,886,886,1,1,891,893,1,130,895,895,1,116,902,902,1,38,
            904,906,1,37,908,908,1,64,910,911,1,63,913,929,1,32,931,939,1,32,975,975,1,8,984,1006,2,1,1010,1010,1,7,1015,1015,1,1,
            1018,1018,1,1,1024,1039,1,80,1040,1071,1,32,1120,1152,2,1,1162,1214,2,1,1216,1216,1,15,1217,1229,2,1,1232,1326,2,1,
            1329,1366,1,48,4256,4293,1,7264,4295,4295,1,7264,4301,4301,1,7264,4304,4346,1,3008,4349,4351,1,3008,5024,5103,1,38864,
            5104,5109,1,8,7545,7545,1,35332,7549,7549,1,3814,7566,7566,1,35384,7680,7828,2,1,7840,7934,2,1,7936,7943,1,8,
            7952,7957,1,8,7968,7975,1,8,7984,7991,1,8,8000,8005,1,8,8017,8023,2,8,8032,8039,1,8,8048,8049,1,74,8050,8053,1,86,
            8054,8055,1,100,8056,8057,1,128,8058,8059,1,112,8060,8061,1,126,8112,8113,1,8,8144,8145,1,8,8160,8161,1,8,8165,8165,1,7,
            8498,8498,1,28,8544,8559,1,16,8579,8579,1,1,9398,9423,1,26,11264,11311,1,48,11360,11360,1,1,11367,11371,2,1,
            11378,11378,1,1,11381,11381,1,1,11392,11490,2,1,11499,11501,2,1,11506,11506,1,1,42560,42604,2,1,42624,42650,2,1,
            42786,42798,2,1,42802,42862,2,1,42873,42875,2,1,42878,42886,2,1,42891,42891,1,1,42896,42898,2,1,42900,42900,1,48,
            42902,42920,2,1,42931,42931,1,928,42932,42946,2,1,42951,42953,2,1,42960,42960,1,1,42966,42968,2,1,42997,42997,1,1,
            65313,65338,1,32,66560,66599,1,40,66736,66771,1,40,66928,66938,1,39,66940,66954,1,39,66956,66962,1,39,66964,66965,1,39,
            68736,68786,1,64,71840,71871,1,32,93760,93791,1,32,125184,125217,1,34}'::integer[])) as letters(run),
             generate_series(1, cardinality(run), 4) as n
    ),
    one_way as materialized (
        select run[n] as first, run[n + 1] as last, run[n + 2] as step, run[n + 3] as shift
        from (values ('{
            181,181,1,743,305,305,1,-232,383,383,1,-300,453,453,1,-1,453,453,1,1,456,456,1,-1,456,456,1,1,459,459,1,-1,459,459,1,1,
            498,498,1,-1,498,498,1,1,837,837,1,84,962,962,1,-31,976,976,1,-62,977,977,1,-57,981,981,1,-47,982,982,1,-54,
            1008,1008,1,-86,1009,1009,1,-80,1012,1012,1,-60,1013,1013,1,-96,7296,7296,1,-6254,7297,7297,1,-6253,7298,7298,1,-6244,
            7299,7300,1,-6242,7301,7301,1,-6243,7302,7302,1,-6236,7303,7303,1,-6181,7304,7304,1,35266,7835,7835,1,-59,
            7838,7838,1,-7615,8072,8079,1,-8,8088,8095,1,-8,8104,8111,1,-8,8124,8124,1,-9,8126,8126,1,-7205,8140,8140,1,-9,
            8188,8188,1,-9,8486,8486,1,-7517,8490,8490,1,-8383,8491,8491,1,-8262}'::integer[])) as letters(run),
             generate_series(1, cardinality(run), 4) as n
    ),
    letter as materialized (
        select ascii(given) as code, given, place from regexp_split_to_table(wanted, '') with ordinality as s(given, place)
    ),
    other as (
        select place, code + shift as code from letter
        join (select * from two_way union all select * from one_way) as run
          on code between first and last and (code - first) % step = 0
        union
        select place, code - shift from letter
        join two_way on code - shift between first and last and (code - shift - first) % step = 0
        union
        select place, code from letter
    ),
    class as (select place, count(*) as size, string_agg(chr(code), '' order by code) as cases from other group by place)
    select string_agg(case when size > 1 then '[' || cases || ']'
                           else regexp_replace(given, '[][(){}?*+|^$\\.&~# \t\n\r\v\f-]', '\\\&') end, '' order by place)
    from letter join class using (place)
    $_$;

CREATE FUNCTION sereno.instant(micros bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ('1970-01-01 00:00:00+00'::timestamp with time zone + ((micros)::double precision * '00:00:00.000001'::interval));
END;

CREATE FUNCTION sereno.interval_of(rule jsonb) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN ((jsonb_typeof((rule -> 'interval'::text)) = 'number'::text) AND ((((rule ->> 'interval'::text))::numeric >= (0)::numeric) AND (((rule ->> 'interval'::text))::numeric <= '100000000000'::numeric))) THEN (((rule ->> 'interval'::text))::double precision * '00:00:01'::interval)
             ELSE NULL::interval
         END AS "case";
END;

CREATE FUNCTION sereno.is_held(held text, column_name text, wanted bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    source regclass := to_regclass(format('sereno_archive.%I', held));
    is_there boolean;
begin
    if source is null or not has_table_privilege(source, 'select')
       or not exists (select from pg_attribute where attrelid = source and attname = column_name and not attisdropped
                      and atttypid = any('{int8, int4, int2}'::regtype[])) then
        return false;
    end if;
    execute format('select exists (select from %s where %I = $1)', source, column_name) into is_there using wanted;
    return is_there;
end $_$;

CREATE FUNCTION sereno.is_native(of_column pg_attribute, key_columns text[], as_texts text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select (of_column).attname <> all(as_texts) and (
        (of_column).atttypid = any('{int2, int4, int8, text, varchar, timestamptz, timestamp, date}'::regtype[])
        or ((of_column).attname <> all(key_columns) and (of_column).atttypid = any('{bool, float4, float8, bpchar, bytea}'::regtype[])))
$$;

CREATE FUNCTION sereno.is_zone(zone text) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
    SET "TimeZone" TO 'UTC'
    AS $$
begin
    perform set_config('timezone', zone, true);
    return current_setting('timezone') = zone
       and (zone <> upper(zone) or zone !~ '[0-9]' or exists (select from pg_timezone_names where name = zone));
exception when invalid_parameter_value then
    return false;
end $$;

CREATE FUNCTION sereno.keep_failed_delivery() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    if tg_op = 'DELETE' or new.state <> all(sereno.failed_states()) then
        delete from sereno.failed_deliveries where delivery_id = old.id;
    else
        insert into sereno.failed_deliveries (delivery_id, state, channel, tenant)
        values (new.id, new.state, new.channel, new.tenant)
        on conflict (delivery_id) do update set state = excluded.state;
    end if;
    return null;
end $$;

CREATE FUNCTION sereno.keep_first(kept anyelement, further anyelement) RETURNS anyelement
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$select kept$$;

CREATE FUNCTION sereno.keep_moving() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) not between 0.001 and 10 then
        perform set_config('idle_in_transaction_session_timeout', '10s', true);
    end if;
end $$;

CREATE FUNCTION sereno.keeps_rule(before jsonb, after jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((before - 'spread'::text) = (after - 'spread'::text));
END;

CREATE FUNCTION sereno.key_value(part text, of_type oid) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select format(case
        when of_type = 'timestamptz'::regtype then
            $value$case when %1$s ~ '^-?\d+$' then timestamptz 'epoch' + div(%1$s::numeric, 86400000000)::integer * interval '1 day'
                + mod(%1$s::numeric, 86400000000)::float8 * interval '1 microsecond' else %1$s::timestamptz end$value$
        when of_type = 'timestamp'::regtype then
            $value$case when %1$s ~ '^-?\d+$' then timestamp 'epoch' + div(%1$s::numeric, 86400000000)::integer * interval '1 day'
                + mod(%1$s::numeric, 86400000000)::float8 * interval '1 microsecond' else %1$s::timestamp end$value$
        when of_type = 'date'::regtype then
            $value$case when %1$s ~ '^-?\d+$' then date '1970-01-01' + %1$s::integer else %1$s::date end$value$
        else '%1$s::%2$s' end, part, format_type(of_type, -1))
$_$;

CREATE FUNCTION sereno.keys_for(task text, queue text, tenant text, args jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
declare
    wanted  record;
    found   jsonb := '{}';
    limits  jsonb;
begin
    for wanted in
        select rule from sereno.key_rules
        where (kind = 'queue' and name = keys_for.queue) or (kind = 'task' and name = keys_for.task) order by kind
    loop
        args := coalesce(wanted.rule -> 'defaults', '{}') || coalesce(keys_for.args, '{}');
        if wanted.rule ? 'fair' then
            found := found || jsonb_build_object('fair', sereno.fill(wanted.rule ->> 'fair', task, queue, tenant, args));
        end if;
        if wanted.rule ? 'order' then
            found := found || jsonb_build_object('order', sereno.fill(wanted.rule ->> 'order', task, queue, tenant, args));
        end if;
        if wanted.rule ? 'blocks' then
            found := found || jsonb_build_object('blocks', true);
        end if;
        select jsonb_agg(jsonb_build_array(
                   item ->> 0, sereno.fill(item ->> 1, task, queue, tenant, args),
                   case when sereno.fill(item ->> 2, task, queue, tenant, args) ~ '^[0-9]{1,7}$'
                        then greatest(1, least(1000000, sereno.fill(item ->> 2, task, queue, tenant, args)::integer))
                        else 1 end))
        into limits
        from jsonb_array_elements(wanted.rule -> 'limits') as item;
        if limits is not null then
            found := found || jsonb_build_object('limits', limits || coalesce((
                select jsonb_agg(item) from jsonb_array_elements(found -> 'limits') as item
                where item ->> 0 not in (select given ->> 0 from jsonb_array_elements(limits) as given)), '[]'));
        end if;
    end loop;
    if found = '{}' then
        return null;
    end if;
    if found ? 'limits' then
        found := found || jsonb_build_object('limits', (
            select jsonb_agg(item order by (item ->> 0) collate "C") from jsonb_array_elements(found -> 'limits') as item));
    end if;
    return found;
end $_$;

CREATE FUNCTION sereno.known_zone(zone text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
begin
    perform now() at time zone zone;
    return coalesce(zone, 'UTC');
exception when others then
    return 'UTC';
end $$;

CREATE FUNCTION sereno.lane_of(queue text, keys jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select hashtextextended(jsonb_build_array(queue, keys)::text, 1) $$;

CREATE FUNCTION sereno.learn_floors(for_session bigint, claimed bigint[], looked_back boolean, is_full boolean, took interval) RETURNS void
    LANGUAGE sql
    AS $$
    update sereno.sessions
    set look_back_at = case when looked_back then sereno.now() + least(interval '30 seconds', 20 * took) else look_back_at end,
        floors = floors
            || case when looked_back then jsonb_build_object('wakes', coalesce(
                   (select min(id) from sereno.lane_wakes),
                   pg_sequence_last_value(pg_get_serial_sequence('sereno.lane_wakes', 'id')), 0)) else '{}' end
            || coalesce((
                select jsonb_object_agg(pair, coalesce(above, case when is_full and sessions.passed_over is null then lowest else known end))
                from (select pair, known, min(ready_seq) as lowest, min(ready_seq) filter (where ready_seq >= known) as above
                      from sereno.jobs cross join lateral (select jobs.queue || ':' || priority) as p(pair)
                      cross join lateral (select coalesce((sessions.floors ->> pair)::bigint, 0)) as k(known)
                      where jobs.id = any(claimed) and lane is null
                      group by pair, known) as learnt), '{}')
    where id = any(array(select own.id from sereno.sessions own where own.id = for_session for update skip locked))
    $$;

CREATE FUNCTION sereno.leave_restored(of_kind text, most integer, OUT gone bigint, OUT changed bigint) RETURNS record
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $_$
declare
    held sereno.archive_batches;
    child record;
    target regclass;
    finds text;
begin
    perform pg_advisory_xact_lock(hashtext('sereno.restore'));
    select b.* into held from sereno.restored r join sereno.archive_batches b on b.id = r.batch_id
    where r.until <= sereno.now() and r.kind = of_kind order by r.until limit 1;
    if not found then
        return;
    end if;
    target := sereno.restore_target(held.kind, held.source);
    -- If a file of the batch is damaged, the restored row may be the last copy.
    if held.kind not in ('attempts', 'receipts') and target is not null
       and not exists (select from sereno.archive_files where batch_id = held.id and failed_at is not null) then
        finds := sereno.mark_finds(target, held.key_columns);
    end if;
    select * into child from (values
        ('jobs', 'attempts', 'sereno.attempts', 'job_id', 'c.job_id::text || chr(9) || c.number::text'),
        ('deliveries', 'receipts', 'sereno.receipts', 'delivery_id', 'c.id::text')
    ) as known (parent, kind, source, refers, key) where parent = held.kind;
    execute format(
        $leave$with marks as materialized (
            select key, digest, length(key) - length(replace(key, chr(9), '')) as tabs from sereno.restored
            where kind = $1 and batch_id = $2 and until <= sereno.now() order by until limit $3),
        gone as (%s),
        children as (%s),
        forgotten as (delete from sereno.restored r using children c where r.kind = c.kind and r.key = c.key),
        unmarked as (delete from sereno.restored r using marks m where r.kind = $1 and r.key = m.key),
        again as (
            insert into sereno.archived_again (kind, key)
            select $1, key from marks where key not in (select key from gone) on conflict do nothing)
        select (select count(*) from gone), (select count(*) from marks) - (select count(*) from gone)$leave$,
        case when finds is null then 'select null::text as key, null::bigint as id where false' else format(
            $gone$delete from %s as t using marks as m where %s and %s = m.key and md5((t.*)::text) = m.digest%s returning m.key%s$gone$,
            target, finds, sereno.archive_key(target, held.key_columns, 't.'),
            case when child.kind is null then '' else format(
                $same$ and not exists (select from %s as c where c.%I = t.id and not exists (
                    select from sereno.restored r where r.kind = %L and r.key = %s and r.digest = md5((c.*)::text)))$same$,
                child.source, child.refers, child.kind, child.key) end,
            case when child.kind is null then '' else ', t.id' end) end,
        case when finds is null or child.kind is null then 'select null::text as kind, null::text as key where false' else format(
            $children$delete from %s as c using gone where c.%I = gone.id returning %L as kind, %s as key$children$,
            child.source, child.refers, child.kind, child.key) end)
    into gone, changed using held.kind, held.id, most;
end $_$;

CREATE FUNCTION sereno.limiter_of(limit_name text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select hashtextextended(jsonb_build_array(limit_name, key)::text, 2) $$;

CREATE FUNCTION sereno.limiters_of(queue text, keys jsonb) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    select sereno.limiter_of(item ->> 0, item ->> 1) from jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    where item ->> 0 in (select name from sereno.limits where kind = 'slots')
    union
    select sereno.order_of(limiters_of.queue, keys) where keys ? 'order'
    union
    select sereno.limiter_of(name, '') from sereno.limits where limits.queue = limiters_of.queue and kind = 'slots'
    $$;

CREATE FUNCTION sereno.make_day_partition(parent text, moment text, day date) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $$
declare
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    -- Two workers may call this at the same time: the second one waits, then finds the partition.
    perform pg_advisory_xact_lock(hashtext('sereno.' || parent));
    if to_regclass(format('sereno.%I', name)) is not null then
        return false;
    end if;
    -- Writers wait here, before their rows are routed to a partition. A row that was already routed to the default
    -- partition would be refused there once this day is attached.
    execute format('lock table sereno.%I in share row exclusive mode', parent);
    execute format('create table sereno.%I (like sereno.%I including all)', name, parent);
    perform sereno.share_reading(format('sereno.%I', parent)::regclass, format('sereno.%I', name)::regclass);
    -- Rows of this day in the default partition are moved first; ATTACH would be refused otherwise.
    execute format('with moved as (delete from sereno.%I where %I >= %L and %I < %L returning *) '
                   'insert into sereno.%I select * from moved',
                   parent || '_default', moment, from_at, moment, to_at, name);
    execute format('alter table sereno.%I attach partition sereno.%I for values from (%L) to (%L)',
                   parent, name, from_at, to_at);
    return true;
end $$;

CREATE FUNCTION sereno.make_history_partition(day date) RETURNS boolean
    LANGUAGE sql
    AS $$ select sereno.make_day_partition('history_done', 'finished_at', day) $$;

CREATE FUNCTION sereno.make_limiters(lane_ids bigint[], queues text[]) RETURNS void
    LANGUAGE sql
    AS $$
    insert into sereno.limiters (id, limit_name, key)
    select distinct on (1) * from (
        select sereno.limiter_of(item ->> 0, item ->> 1), item ->> 0, item ->> 1
        from sereno.lanes, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item where id = any(lane_ids)
        union all
        select order_id, null, keys ->> 'order' from sereno.lanes where id = any(lane_ids) and order_id is not null
        union all
        select sereno.limiter_of(name, ''), name, '' from sereno.limits where queue = any(queues)) as limiter(id)
    where (select true from sereno.limiters where limiters.id = limiter.id) is null
    order by 1
    on conflict do nothing
    $$;

CREATE FUNCTION sereno.make_waiting(jobs jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    wanted    record;
    unknown   bigint;
    open_ids  bigint[];
    sure      bigint[];
begin
    for wanted in
        select id, coalesce(calls, false) as calls, case when calls then 'continue' else coalesce(on_dead, 'wait') end as on_dead,
               array(select distinct unnest(after) order by 1) as after
        from jsonb_to_recordset(jobs) as given(id bigint, after bigint[], on_dead text, calls boolean) order by id
    loop
        -- Live predecessors, and finished ones whose end does not count.
        select coalesce(array_agg(p) filter (where live is not null or sereno.effect_of(past, wanted.on_dead) <> 'counts'), '{}'),
               min(p) filter (where not wanted.calls and (live is null and past is null or p >= wanted.id))
        into open_ids, unknown
        from unnest(wanted.after) as p
        cross join lateral (select (select state from sereno.jobs where jobs.id = p) as live,
                                   (select state from sereno.history where history.id = p
                                    order by finished_at desc limit 1) as past) as found;
        if unknown is not null then
            raise exception 'after: job % does not exist', unknown using errcode = 'invalid_parameter_value',
                hint = 'Its transaction is not committed, it was deleted, or it succeeded and its task has history=False.';
        end if;
        if wanted.calls and exists (
            with recursive above(id) as (
                select predecessor from sereno.dependencies where successor = any(wanted.after)
                union
                select d.predecessor from above join sereno.dependencies d on d.successor = above.id
            )
            select from above where id = wanted.id)
        then
            raise exception 'job % waits for a job that waits for it', wanted.id using errcode = 'invalid_parameter_value';
        end if;
        sure := array(select p.id from sereno.jobs p where p.id = any(open_ids) and p.state in ('ready', 'scheduled')
                      order by p.id for update skip locked);
        update sereno.jobs set has_successors = true where id = any(sure) and has_successors is not true;
        insert into sereno.dependencies (predecessor, successor, to_check)
        select p, wanted.id, p <> all(sure) from unnest(open_ids) as p
        on conflict (predecessor, successor) do update set to_check = true;
        update sereno.jobs
        set links = coalesce(links, '{}') || case when wanted.calls then jsonb_build_object('calls', wanted.after)
                                                  else jsonb_build_object('after', wanted.after, 'on_dead', wanted.on_dead) end,
            pending = nullif(coalesce(pending, 0) + cardinality(open_ids), 0),
            state = case when cardinality(open_ids) > 0 then 'waiting' else state end
        where id = wanted.id;
        perform pg_notify('sereno.linked', p.id::text)
        from sereno.jobs p
        where p.id = any(open_ids) and p.state = 'running'
          and coalesce(current_setting('sereno.notify', true), '') <> 'off';
    end loop;
end $$;

CREATE FUNCTION sereno.mark_claimed(for_session bigint, ids bigint[], moment timestamp with time zone DEFAULT sereno.now()) RETURNS SETOF sereno.jobs
    LANGUAGE sql
    AS $$
    update sereno.jobs set state = 'running', attempt = attempt + 1, session_id = for_session, claimed_at = moment
    where id = any(ids)
    returning *
    $$;

CREATE FUNCTION sereno.mark_finds(target regclass, keys text[]) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select string_agg(format('t.%I = case when m.tabs = %s then %s end', name, cardinality(keys) - 1,
                             sereno.key_value(case when cardinality(keys) = 1 then 'm.key' else format('split_part(m.key, chr(9), %s)', place) end,
                                              atttypid)), ' and ' order by place)
    from unnest(keys) with ordinality as named (name, place)
    join pg_attribute on attrelid = target and attname = name and not attisdropped
    having count(*) = cardinality(keys)
$$;

CREATE FUNCTION sereno.mark_passed_over(ids bigint[]) RETURNS void
    LANGUAGE sql
    AS $$
    update sereno.lanes set passed_over = true
    where id = any(array(select id from sereno.lanes where id = any(ids) and not passed_over order by id for update skip locked))
    $$;

CREATE FUNCTION sereno.masked(message text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION sereno.measure_file(of_batch bigint, of_number integer, OUT rows bigint, OUT keys_hash text, OUT content_hash text, OUT first_id bigint, OUT last_id bigint, OUT from_at timestamp with time zone, OUT to_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    AS $_$
declare
    pages text;
begin
    select sereno.page_query(of_batch, of_number, string_agg(value, ', ' order by place) filter (where nulls <> 'all'),
                             format('sha256(%s) as digest', string_agg(digest, ' || ' order by place)))
    into pages from sereno.file_columns(of_batch, of_number);
    execute format(
        $measure$select coalesce(sum(counted), 0), encode(sha256(convert_to(coalesce(string_agg(keys, chr(10) order by place), ''), 'UTF8')), 'hex'),
            encode(sha256(coalesce(string_agg(digest, '' order by place), '')), 'hex'), min(low), max(high), min(began), max(ended)
        from (%s) as pages$measure$, pages)
    into rows, keys_hash, content_hash, first_id, last_id, from_at, to_at;
end $_$;

CREATE FUNCTION sereno.meets(requires jsonb, task text, capabilities jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
begin
    return coalesce((requires ->> 'version')::integer, 1) <= coalesce((capabilities -> 'versions' ->> task)::integer, 1)
           and (not requires ? 'key' or coalesce(capabilities -> 'keys' ? (requires ->> 'key'), false));
end $$;

CREATE FUNCTION sereno.message_matches(message text, patterns text[], hides boolean) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select exists (select from unnest(patterns) as pattern
                   where message ilike pattern and (hides is not true or sereno.masked(message) ilike pattern))
$$;

CREATE FUNCTION sereno.micros(at timestamp with time zone) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((EXTRACT(epoch FROM at) * (1000000)::numeric))::bigint AS int8;
END;

CREATE FUNCTION sereno.most_read(part text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$ select case part when 'back' then 50000 else 10000 end $$;

CREATE FUNCTION sereno.new_batch(of_kind text, source regclass, keys text[], moment text, OUT batch bigint, OUT held text) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    batch := nextval(pg_get_serial_sequence('sereno.archive_batches', 'id'));
    held := regexp_replace(left(of_kind, 40), '[^a-z0-9_]+', '_', 'g') || '_' || batch;
    execute format('create table sereno_archive.%I (%s)', held, (
        select string_agg(format('%I %s', attname, format_type(atttypid, atttypmod))
                          || case when attcollation <> 0 then format(' collate %s', attcollation::regcollation) else '' end
                          || case when attnotnull then ' not null' else '' end, ', ' order by attnum)
        from pg_attribute where attrelid = source and attnum > 0 and not attisdropped));
    -- Files are written and measured in the order of the key.
    execute format('create index on sereno_archive.%I (%s)', held,
                   (select string_agg(quote_ident(name), ', ' order by place) from unnest(keys) with ordinality as named (name, place)));
    perform sereno.share_reading(source, format('sereno_archive.%I', held)::regclass);
    insert into sereno.archive_batches (id, kind, source, held_in, key_columns, time_column, schema_version)
    overriding system value
    values (batch, of_kind, (select format('%I.%I', nspname, relname) from pg_class join pg_namespace n on n.oid = relnamespace where pg_class.oid = source),
            held, keys, moment, (select max(number) from sereno.migrations));
end $$;

CREATE FUNCTION sereno.next_check(queues text[], moment timestamp with time zone) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
    select extract(epoch from coalesce(min(check_at) filter (where is_own), case when count(*) = 20 then max(check_at) end)
                              - moment)::double precision
    from (select check_at,
                 (select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
                 or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null as is_own
          from (select id, check_at from sereno.limiters where check_at > moment order by check_at limit 20) as due) as next
    $$;

CREATE FUNCTION sereno.notify(type text, payload jsonb, "to" text[] DEFAULT NULL::text[], subject text DEFAULT NULL::text, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl interval DEFAULT NULL::interval, rate double precision DEFAULT NULL::double precision, trace text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    declared  jsonb := (select definition from sereno.event_types where name = notify.type);
    due       timestamptz := coalesce(at, sereno.clock_now());
    seconds   double precision := coalesce(extract(epoch from ttl), (declared ->> 'ttl')::double precision);
    -- Without a subject and key, a random key keeps the event distinct from every other.
    own_key   text := case when subject is null and key is null then replace(gen_random_uuid()::text, '-', '') else key end;
    gathered  text;
    of_topic  text;
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, declared);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant), ('trace', trace)) as given(name, value);
    of_topic := sereno.topic_of(type, "to");
    if rate not between 1 / 3600.0 and 1000000 then
        raise exception 'event %: rate is out of range: one in an hour to a million in a second', type
            using errcode = 'invalid_parameter_value', hint = 'It is a number of deliveries in a second; leave it out for no limit.';
    end if;
    if declared ? 'digest' then
        gathered := sereno.digest_key(type, declared -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, topic, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked, rate,
                                   variants, trace)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, declared ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(declared -> 'channels')),
                case when of_topic is null then (select array_agg(distinct name collate "C") from unnest("to") as named(name)) end, of_topic,
                coalesce((declared ->> 'critical')::boolean, false), coalesce((declared ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), declared ->> 'note', declared -> 'steps',
                (declared -> 'throttle' ->> 'most')::integer, (declared -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (declared -> 'digest' ->> 'seconds')::double precision end, true, notify.rate,
                declared -> 'variants', notify.trace)
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- Not by `enqueue`, which refuses sereno's own tasks to some logins.
            perform sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
                'task', 'sereno' || '.fan_out', 'args', jsonb_build_object('event', number),
                'queue', coalesce(declared ->> 'queue', 'notifications'), 'run_at', at, 'tenant', tenant, 'trace', trace,
                'by_rules', true)));
            return number;
        end if;
        select id into number from sereno.events e
        where e.type = notify.type and e.tenant = coalesce(notify.tenant, '')
          and e.subject is not distinct from notify.subject and e.key is not distinct from own_key;
        -- The event was deleted in between, so the key is free again: try again.
        exit when number is not null;
    end loop;
    return number;
end $$;

COMMENT ON FUNCTION sereno.notify(type text, payload jsonb, "to" text[], subject text, key text, tenant text, at timestamp with time zone, ttl interval, rate double precision, trace text) IS 'Write an event in the current transaction, and return its id. A second call with the same type, tenant, subject and key returns the id of the first. "to": keys of recipients, or one topic, such as topic:tender:r42; without it, everyone who wants the event. at: not sent before then. ttl: not sent after that. rate: deliveries in a second. trace: links the event to its cause.';

CREATE FUNCTION sereno.notify_clock() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_notify('sereno.clock', '');
    return null;
end $$;

CREATE FUNCTION sereno.notify_finished(ids bigint[]) RETURNS void
    LANGUAGE sql
    AS $$
    select pg_notify('sereno.finished', string_agg(id::text, ','))
    from unnest(ids) with ordinality as finished(id, place)
    where coalesce(current_setting('sereno.notify', true), '') <> 'off'
      and exists (select from sereno.waiters where until > pg_catalog.clock_timestamp())
    group by (place - 1) / 300
$$;

CREATE FUNCTION sereno.notify_ready(queue text, due_in double precision, settled_by bigint DEFAULT NULL::bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if due_in <= 10 and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.sessions s where s.idle and s.queues ? notify_ready.queue
                                                   and (due_in > 0 or s.id is distinct from settled_by)) then
        perform pg_notify(case when due_in <= 0 then 'sereno.ready' else 'sereno.due' end,
                          case when due_in <= 0 then notify_ready.queue
                               else round(due_in::numeric, 3) || ' ' || notify_ready.queue end);
    end if;
end $$;

CREATE FUNCTION sereno.open_lanes(from_id bigint) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
    result json;
begin
    if not pg_try_advisory_xact_lock(hashtext('sereno: lanes are opened'), 'sereno.lane_wakes'::regclass::oid::integer) then
        return json_build_array(0, null, 1);
    end if;
    with woken as materialized (
        select id, lane, queue, priority, ready_seq from sereno.lane_wakes
        where id >= from_id order by id limit 5000
    ),
    wanted as materialized (
        select lane, min(queue) as queue, min(priority) as priority, min(ready_seq) as ready_seq,
               row_number() over () as place
        from woken group by lane
    ),
    known as materialized (select id from sereno.lanes where id = any(array(select lane from wanted))),
    -- The current rows: the update below sees its rows as they were when the statement began, and a claim may have taken
    -- the last job of a lane since then.
    locked as materialized (
        select id, has_work, waits_for, order_id, band, floor_priority, floor_seq from sereno.lanes
        where id = any(array(select id from known)) order by id for update skip locked
    ),
    -- A fair key that joins late starts at the turn of the lane that is next.
    pace as materialized (
        select queue, coalesce(
            (select turn from sereno.lanes
             where has_work and waits_for is null and lanes.queue = served.queue and band = 10 order by turn limit 1),
            (select clock from sereno.shares where shares.queue = served.queue order by clock desc limit 1), 0) as turn
        from (select distinct queue from wanted) as served
    ),
    moved as (
        update sereno.lanes
        set has_work = true,
            waits_for = case when lanes.has_work and lanes.order_id is null then lanes.waits_for end,
            band = case when lanes.fair is not null then lanes.band
                        when lanes.has_work then least(lanes.band, wanted.priority) else wanted.priority end,
            turn = case when lanes.has_work then lanes.turn
                        when lanes.fair is not null then greatest(lanes.turn, pace.turn)
                        else sereno.micros(sereno.now()) + wanted.place end,
            floor_priority = least(lanes.floor_priority, wanted.priority),
            floor_seq = case when lanes.floor_priority < wanted.priority then lanes.floor_seq
                             when lanes.floor_priority = wanted.priority then least(lanes.floor_seq, wanted.ready_seq)
                             else wanted.ready_seq end
        from wanted join pace on pace.queue = wanted.queue join locked on locked.id = wanted.lane
        where lanes.id = any(array(select id from locked)) and lanes.id = wanted.lane
          and (not locked.has_work or (locked.waits_for is not null and locked.order_id is not null)
               or wanted.priority < locked.band
               or (wanted.priority, wanted.ready_seq) < (locked.floor_priority, locked.floor_seq))
    ),
    fresh as materialized (
        select wanted.*, job.keys
        from wanted left join lateral (
            select keys from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
            limit 1) as job on true
        where wanted.lane not in (select id from known)
    ),
    limiter as materialized (
        select lane, array_agg(limiter) as limiters, array_agg(units) as units
        from (select lane, sereno.limiter_of(item ->> 0, item ->> 1) as limiter, (item ->> 2)::integer as units
              from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
              union all
              select lane, sereno.order_of(queue, keys), 1 from fresh where keys ? 'order') as each
        group by lane
    ),
    limits_made as (
        insert into sereno.limits (name, kind, slots, units, period, burst)
        select distinct on (item ->> 0) item ->> 0, case when item -> 3 ? 'slots' then 'slots' else 'rate' end,
               (item -> 3 ->> 'slots')::integer, (item -> 3 ->> 'units')::double precision,
               (item -> 3 ->> 'period')::double precision, (item -> 3 ->> 'burst')::double precision
        from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
        where item -> 3 is not null and item ->> 0 not in (select name from sereno.limits)
        order by item ->> 0
        on conflict do nothing
    ),
    -- Existing limiters are excluded first: an insert would wait for a claim that is changing the row.
    limiters_made as (
        insert into sereno.limiters (id, limit_name, key)
        select distinct on (limiter) * from (
            select sereno.limiter_of(item ->> 0, item ->> 1) as limiter, item ->> 0, item ->> 1
            from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
            union all
            select sereno.order_of(queue, keys), null, keys ->> 'order' from fresh where keys ? 'order') as each
        where limiter not in (select id from sereno.limiters where id = any(array(select unnest(limiters) from limiter)))
        order by limiter
        on conflict do nothing
    ),
    queues_made as (
        insert into sereno.lane_queues (queue)
        select distinct queue from fresh
        where keys is not null and queue not in (select queue from sereno.lane_queues)
        order by queue
        on conflict do nothing
    ),
    paced as materialized (
        select fresh.*, keys ->> 'fair' as fair, coalesce(weight, 1) as weight,
               greatest(coalesce(clock, pace.turn), pace.turn) as base, clock is not null as is_known,
               row_number() over (partition by fresh.queue, keys ->> 'fair' order by ready_seq) as number
        from fresh join pace on pace.queue = fresh.queue
        left join sereno.weights on weights.key = keys ->> 'fair'
        left join sereno.shares on shares.queue = fresh.queue and shares.key = keys ->> 'fair'
        where keys is not null
    ),
    charge as materialized (
        select queue, fair, max(base + number / weight) as clock, bool_or(is_known) as is_known
        from paced where fair is not null group by queue, fair
    ),
    shares_made as (
        insert into sereno.shares (queue, key, clock)
        select queue, fair, clock from charge where not is_known order by queue, fair
        on conflict do nothing
    ),
    shares_moved as (
        update sereno.shares set clock = greatest(shares.clock, due.clock)
        from (select charge.*, share.place from charge cross join lateral (
                  select ctid as place from sereno.shares
                  where is_known and shares.queue = charge.queue and shares.key = charge.fair
                  for update skip locked) as share) as due
        where shares.ctid = due.place and shares.queue = due.queue and shares.key = due.fair
    ),
    made as (
        insert into sereno.lanes (id, queue, keys, limiters, units, order_id, fair, band, turn)
        select paced.lane, queue, keys, coalesce(limiters, '{}'), coalesce(units, '{}'), sereno.order_of(queue, keys), fair,
               case when fair is null then priority else 10 end,
               case when fair is null then sereno.micros(sereno.now()) + place else base + (number - 1) / weight end
        from paced left join limiter on limiter.lane = paced.lane
        order by paced.lane
        on conflict do nothing
        returning id
    ),
    read as (
        delete from sereno.lane_wakes
        where id = any(array(select id from woken
                             where lane in (select id from locked union all select id from made
                                            union all select lane from fresh where keys is null)))
        returning id
    )
    select json_build_array((select count(*) from woken), (select min(id) from woken),
                            (select count(*) from woken) - (select count(*) from read))
    into result;
    return result;
end $$;

CREATE FUNCTION sereno.open_session(queues text[], tasks text[], host text DEFAULT NULL::text, pid integer DEFAULT NULL::integer, slots integer DEFAULT 1, version text DEFAULT 'sql'::text, lease interval DEFAULT '00:00:30'::interval, listens boolean DEFAULT false, release text DEFAULT NULL::text, task_versions jsonb DEFAULT NULL::jsonb, keys text[] DEFAULT NULL::text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    made     bigint;
    seconds  double precision := extract(epoch from open_session.lease);
    wrong    text;
begin
    if coalesce(cardinality(queues), 0) not between 1 and 1000 or coalesce(cardinality(tasks), 0) not between 1 and 10000
       or array_position(queues || tasks, null) is not null then
        wrong := 'a session has 1 to 1000 queues and 1 to 10000 tasks, none of them null';
    elsif exists (select from unnest(tasks) as name where starts_with(name, 'sereno' || '.')) then
        wrong := 'tasks of sereno itself are for workers in Python';
    elsif coalesce(slots, 0) not between 1 and 100000 then
        wrong := 'slots must be 1 to 100000';
    elsif coalesce(seconds, 0) not between 1 and 3600 then
        wrong := 'lease must be 1 second to 1 hour';
    elsif length(release) not between 1 and 200 then
        wrong := 'a release has 1 to 200 characters';
    elsif task_versions is not null and (
        jsonb_typeof(task_versions) <> 'object'
        or exists (select from jsonb_each_text(task_versions) as given
                   where given.key <> all(tasks) or not coalesce(given.value ~ '^[1-9][0-9]{0,8}$', false))) then
        wrong := 'task_versions must be positive integers by task, and only of tasks of the session';
    elsif cardinality(keys) > 100 or array_position(keys, null) is not null then
        wrong := 'a session has at most 100 keys, none of them null';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'invalid_parameter_value',
            hint = 'Such as: select sereno.open_session(array[''default''], array[''resize''])';
    end if;
    perform sereno.check_text('queue', name) from unnest(queues) as name;
    perform sereno.check_text('task', name) from unnest(tasks) as name;
    perform sereno.check_text('host', host), sereno.check_text('version', version);
    perform sereno.check_text('key', name) from unnest(keys) as name;
    insert into sereno.sessions (host, pid, version, queues, tasks, idle, lease, lease_until, opened_by, started_at, seen_at,
                                 release, capabilities)
    values (coalesce(open_session.host, pg_catalog.host(inet_client_addr()), 'localhost'), coalesce(open_session.pid, 0),
            coalesce(open_session.version, 'sql'),
            (select jsonb_object_agg(name, open_session.slots) from unnest(open_session.queues) as name), open_session.tasks,
            coalesce(listens, false), seconds, sereno.now() + make_interval(secs => seconds), session_user,
            sereno.now(), sereno.now(), open_session.release,
            case when task_versions is not null or keys is not null then jsonb_build_object(
                'versions', coalesce(task_versions, '{}'), 'keys', to_jsonb(coalesce(open_session.keys, '{}')),
                'encrypting', '[]'::jsonb) end)
    returning id into made;
    return made;
end $_$;

COMMENT ON FUNCTION sereno.open_session(queues text[], tasks text[], host text, pid integer, slots integer, version text, lease interval, listens boolean, release text, task_versions jsonb, keys text[]) IS 'Open a session of a worker, and return its id. It belongs to the role that opened it. slots: how many jobs it runs at once; shown, not enforced. listens: new jobs are notified on the channel sereno.ready. task_versions: versions of its tasks, such as {"resize": 2}. keys: ids of the keys that it has for encrypted arguments.';

CREATE FUNCTION sereno.order_of(queue text, keys jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        select case when keys ? 'order' then hashtextextended(jsonb_build_array(queue, keys ->> 'order')::text, 3) end
    $$;

CREATE TABLE sereno.sessions (
    id bigint NOT NULL,
    state text DEFAULT 'alive'::text NOT NULL,
    idle boolean DEFAULT false NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues jsonb NOT NULL,
    tasks text[] NOT NULL,
    floors jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    seen_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    waiting bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    suspects jsonb DEFAULT '{}'::jsonb NOT NULL,
    opened_by text,
    lease double precision,
    look_back_at timestamp with time zone,
    passed_over jsonb,
    release text,
    capabilities jsonb,
    CONSTRAINT sessions_state_check CHECK ((state = ANY (ARRAY['alive'::text, 'closed'::text, 'dead'::text])))
)
WITH (fillfactor='50');

CREATE FUNCTION sereno.own_session(session bigint) RETURNS sereno.sessions
    LANGUAGE plpgsql
    AS $$
declare
    own  sereno.sessions;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this transaction is %, and workers need read committed', current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state', hint = 'Call it by itself, outside of a transaction.';
    end if;
    select * into own from sereno.sessions where id = session;
    if found and own.opened_by is distinct from session_user then
        raise exception 'session % was not opened by the role %', session, session_user
            using errcode = 'insufficient_privilege', hint = 'Use the id that sereno.open_session returned to this role.';
    end if;
    return own;
end $$;

CREATE FUNCTION sereno.page_query(of_batch bigint, of_number integer, read text, computed text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    held sereno.archive_batches;
    table_name text;
    part text;
    number_type boolean;
    from_page text;
    key_list text;
    from_list text;
    named_list text;
begin
    select * into strict held from sereno.archive_batches where id = of_batch;
    select sereno.part_of_table(first_block, last_block) into strict part from sereno.archive_files where batch_id = of_batch and number = of_number;
    table_name := format('sereno_archive.%I', held.held_in);
    number_type := exists (select from pg_attribute where attrelid = table_name::regclass and attname = held.key_columns[1]
                           and atttypid in ('int8'::regtype, 'int4'::regtype, 'int2'::regtype));
    select string_agg(format('held.%I', name), ', ' order by place), string_agg(format('starts.from_%s', place), ', ' order by place),
           string_agg(format('from_%s', place), ', ' order by place) into key_list, from_list, named_list
    from unnest(held.key_columns) with ordinality as named (name, place);
    -- Starts at the first key of a page, in the order of the index. Operators are found by name, which a user may
    -- have defined too: the operators of types other than PostgreSQL's own are not used, at the price of an index
    -- scan from the first row.
    from_page := case when exists (select from pg_attribute where attrelid = table_name::regclass and attname = any(held.key_columns) and atttypid >= 16384)
                      then 'record_ge(row(%s), row(%s))' else '(%s) operator(pg_catalog.>=) (%s)' end;
    from_page := ' where ' || format(from_page, key_list, from_list) || replace(part, ' where ', ' and ');
    return format(
        $pages$with recursive starts (place, %1$s) as (
            (select 0::bigint, %2$s from %3$s as held%4$s order by %2$s limit 1)
            union all
            select starts.place + 1, following.* from starts cross join lateral (
                select %2$s from %3$s as held%5$s order by %2$s offset 8192 limit 1
            ) as following
        )
        select starts.place, measured.* from starts cross join lateral (
            select count(*) as counted, string_agg(key, chr(10)) as keys, %6$s,
                   least(greatest(min(moment), '0001-01-02'), '9999-12-30')::timestamptz as began,
                   least(greatest(max(moment), '0001-01-02'), '9999-12-30')::timestamptz as ended, %7$s
            from (
                select %8$s as key, held.%9$I as moment, held.%10$I as first_key, %11$s
                from %3$s as held%5$s order by %2$s limit 8192
            ) as found
        ) as measured$pages$,
        named_list, key_list, table_name, part, from_page,
        case when number_type then 'min(first_key)::bigint as low, max(first_key)::bigint as high' else 'null::bigint as low, null::bigint as high' end,
        computed, sereno.archive_key(table_name::regclass, held.key_columns, 'held.', held.as_texts), held.time_column, held.key_columns[1], read);
end $_$;

CREATE FUNCTION sereno.part_in_death(job_id bigint, tried integer, crashes integer, owner bigint) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case
        when state = 'closed' then 'left'
        when exists (select from sereno.steps
                     where steps.job_id = part_in_death.job_id and steps.attempt = tried and is_cursor) then 'advanced'
        when (suspects ->> job_id::text)::integer = tried then 'alone'
        when opened_by is not null and crashes > 0
             and 1 = (select count(*) from sereno.jobs other where other.state = 'running' and other.session_id = owner) then 'alone'
        when job_id = any(waiting)
             and not exists (select from sereno.attempts before
                             where before.job_id = part_in_death.job_id and before.outcome = 'release'
                               and before.session_id = any(array(select id from sereno.sessions where state = 'dead'))) then 'waited'
        else 'began' end
    from (values (owner)) as wanted(id) left join sereno.sessions using (id)
    $$;

CREATE FUNCTION sereno.part_of_table(first_block bigint, last_block bigint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when first_block = 0 and last_block = 4294967294 then ''
                else format(' where ctid >= ''(%s,0)''::tid and ctid < ''(%s,0)''::tid', first_block, last_block) end
$$;

CREATE FUNCTION sereno.pass_over(for_session bigint, ranges sereno.ready_range[], INOUT floors jsonb, INOUT passed_over jsonb, OUT is_short boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    moment     timestamptz := sereno.now();
    head       bigint := coalesce(pg_sequence_last_value('sereno.ready_seq'), 0);
    is_stale   boolean := coalesce((passed_over ->> 'head_at')::timestamptz <= moment - interval '2 seconds', true);
    rise_to    bigint := case when passed_over is null then head when is_stale then (passed_over ->> 'head')::bigint else 0 end;
    risen      jsonb;
    begun      jsonb;
    walked     jsonb;
begin
    select jsonb_object_agg(pair, greatest(stop, rise_to)) filter (where not is_back and stop is not null),
           jsonb_object_agg(pair, stop) filter (where not is_back and stop is not null),
           jsonb_object_agg(pair, coalesce(stop, 0)) filter (where is_back)
    into risen, begun, walked
    from (select range.queue || ':' || range.priority as pair, is_back,
                 (select ready_seq from sereno.jobs
                  where jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                    and jobs.priority = range.priority and jobs.ready_seq >= range.low and jobs.ready_seq < range.high
                  order by ready_seq offset range.most limit 1) as stop
          from unnest(ranges) as range offset 0) as read;
    is_short := risen is not null;
    if risen is null and walked is null then
        return;
    end if;
    floors := floors || coalesce(risen, '{}');
    passed_over := jsonb_build_object(
        'from', coalesce(begun, '{}') || coalesce(passed_over -> 'from', '{}') || coalesce(walked, '{}'),
        'head', case when is_stale then to_jsonb(head) else passed_over -> 'head' end,
        'head_at', case when is_stale then to_jsonb(moment) else passed_over -> 'head_at' end,
        'paused', sereno.paused_now());
    update sereno.sessions as own set floors = own.floors || coalesce(risen, '{}'), passed_over = pass_over.passed_over
    where own.id = any(array(select id from sereno.sessions where id = for_session for update skip locked));
end $$;

CREATE FUNCTION sereno.paused_now() RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$ select coalesce(jsonb_agg(kind || ':' || name), '[]') from sereno.pauses where kind <> 'queue' $$;

CREATE FUNCTION sereno.pick_limited(lanes sereno.taken_lane[], known_tasks text[], capabilities jsonb, OUT ids bigint[], OUT numbers bigint[], OUT stops jsonb, OUT passing bigint[]) RETURNS record
    LANGUAGE sql
    AS $$
    with paused as materialized (select kind, name from sereno.pauses where kind <> 'queue'),
    wanted as materialized (
        select *, greatest(100, 2 * gives, sereno.most_read('lanes') / count(*) over ()) as most
        from unnest(lanes) with ordinality where gives > 0 and id is not null),
    picked as materialized (
        select job.id, wanted.ordinality, job.seen
        from wanted cross join lateral (
            select locked.id, seen
            from (select *, row_number() over () as seen from (
                  select jobs.ctid as place, task, tenant, requires from sereno.jobs
                  where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.id
                    and (priority, ready_seq) >= (wanted.floor_priority, wanted.floor_seq)
                  order by priority, ready_seq limit wanted.most) as rows_read) as near
            cross join lateral (
                select jobs.id from sereno.jobs
                where jobs.ctid = near.place and state = 'ready' and jobs.queue = wanted.queue and jobs.lane = wanted.id
                for update skip locked) as locked
            where task = any(known_tasks) and task <> all(array(select name from paused where kind = 'task'))
              and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
              and (requires is null or sereno.meets(requires, task, capabilities))
            limit wanted.gives) as job
        where wanted.order_id is null
        union all
        select job.id, wanted.ordinality, null
        from wanted cross join lateral (
            select jobs.id, jobs.keys from sereno.jobs where jobs.order_id = wanted.order_id order by jobs.id limit 1) as head
        cross join lateral (
            select jobs.id from sereno.jobs
            where jobs.id = head.id and state = 'ready' and jobs.lane = wanted.id
              and task = any(known_tasks) and task <> all(array(select name from paused where kind = 'task'))
              and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
              and (requires is null or sereno.meets(requires, task, capabilities))
            for update skip locked) as job
        where wanted.order_id is not null
          and (select true from sereno.history_dead dead
               where dead.keys ? 'blocks' and dead.queue = wanted.queue and dead.keys ->> 'order' = head.keys ->> 'order'
               limit 1) is null
    ),
    short as materialized (
        select wanted.* from wanted
        where order_id is null and gives > (select count(*) from picked where picked.ordinality = wanted.ordinality)
    )
    select array_agg(id), array_agg(ordinality),
           (select jsonb_object_agg(short.ordinality, jsonb_build_array(next.priority, next.ready_seq))
            from short cross join lateral (
                select priority, ready_seq from sereno.jobs
                where state = 'ready' and jobs.lane is not null and jobs.queue = short.queue and jobs.lane = short.id
                  and (priority, ready_seq) >= (short.floor_priority, short.floor_seq)
                order by priority, ready_seq offset short.most limit 1) as next),
           (select array_agg(ordinality) from (
                select ordinality from picked group by ordinality having max(seen) > count(*)) as behind_others)
    from picked
    $$;

CREATE FUNCTION sereno.pick_plain(for_session bigint, queues text[], known_tasks text[], wanted integer, floors jsonb, looks_back boolean, turned boolean) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
declare
    ids          bigint[] := '{}';
    passed_over  jsonb;
    known        jsonb := floors;
    ranges       sereno.ready_range[];
    picked       record;
    noted        record;
    abilities    jsonb;
begin
    select own.passed_over, case when own.passed_over is null then pick_plain.floors else own.floors end, own.capabilities
    into passed_over, known, abilities
    from sereno.sessions own where id = for_session;
    for round in 1..2 loop
        ranges := sereno.ready_ranges(queues, coalesce(known, floors), passed_over, looks_back or round = 2, turned);
        exit when ranges is null;
        picked := sereno.pick_ranges(ranges, known_tasks, wanted - cardinality(ids), ids, abilities);
        ids := ids || coalesce(picked.ids, '{}');
        noted := sereno.pass_over(for_session, ranges[:picked.reached], coalesce(known, floors), passed_over);
        exit when not noted.is_short or cardinality(ids) >= wanted;
        known := noted.floors;
        passed_over := noted.passed_over;
    end loop;
    return ids;
end $$;

CREATE FUNCTION sereno.pick_ranges(ranges sereno.ready_range[], known_tasks text[], wanted integer, but bigint[], capabilities jsonb, OUT ids bigint[], OUT reached integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    with paused as materialized (select kind, name from sereno.pauses where kind <> 'queue')
    select array_agg(picked.id), case when count(*) < wanted then cardinality(ranges) else max(picked.number)::integer - 1 end
    into ids, reached
    from (select candidate.id, range.number
          from unnest(ranges) with ordinality as range(queue, priority, low, high, most, is_back, number)
          cross join lateral (
              select locked.id
              from (select jobs.ctid as place, jobs.task, jobs.tenant, jobs.requires from sereno.jobs
                    where jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                      and jobs.priority = range.priority and jobs.ready_seq >= range.low and jobs.ready_seq < range.high
                    order by jobs.ready_seq limit range.most) as near
              cross join lateral (
                  select jobs.id from sereno.jobs
                  where jobs.ctid = near.place and jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                    and jobs.id <> all(but)
                  for update skip locked) as locked
              where near.task = any(known_tasks)
                and near.task <> all(array(select name from paused where kind = 'task'))
                and (near.tenant is null or near.tenant <> all(array(select name from paused where kind = 'tenant')))
                and (near.requires is null or sereno.meets(near.requires, near.task, capabilities))
          ) as candidate
          limit wanted) as picked;
end $$;

CREATE FUNCTION sereno.plan_files(of_batch bigint, most integer) RETURNS integer
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    AS $_$
declare
    held sereno.archive_batches;
    counted bigint;
    began timestamptz;
    pages bigint;
    each bigint;
    planned integer;
    texts text[];
begin
    select * into held from sereno.archive_batches where id = of_batch and dropped_at is null for update;
    if held.id is null or exists (select from sereno.archive_files where batch_id = of_batch) then
        return 0;
    end if;
    -- Values outside the years 1 to 9999, such as infinity, would become other instants in a file: such a column is
    -- written as text.
    execute (
        select format($plan$select count(*), min(%1$I) filter (where %1$I >= '0001-01-01' and %1$I < '10000-01-01')::timestamptz,
                          array_remove(array[%2$s], null) from sereno_archive.%3$I$plan$,
                      held.time_column, string_agg(format('case when bool_or(%1$I < ''0001-01-01'' or %1$I >= ''10000-01-01'') then %2$L end',
                                                          attname, attname), ', '), held.held_in)
        from pg_attribute where attrelid = format('sereno_archive.%I', held.held_in)::regclass and attnum > 0 and not attisdropped
          and atttypid = any('{timestamptz, timestamp, date}'::regtype[]))
    into counted, began, texts;
    began := coalesce(began, held.moved_at);
    pages := greatest(1, pg_relation_size(format('sereno_archive.%I', held.held_in)::regclass) / current_setting('block_size')::bigint);
    each := greatest(1, floor(pages::numeric * most / greatest(counted, 1)));
    insert into sereno.archive_files (batch_id, number, kind, first_block, last_block, object)
    select of_batch, number, held.kind, (number - 1) * each, case when number * each >= pages then 4294967294 else number * each end,
           format('%s/%s/%s-%s-%s-%s-%s.parquet', folder, to_char(began at time zone 'UTC', 'YYYY/MM/DD'), folder,
                  to_char(began at time zone 'UTC', 'YYYYMMDD'), lpad(of_batch::text, greatest(8, length(of_batch::text)), '0'), held.nonce, number)
    from generate_series(1, ceil(pages::numeric / each)::integer) as number,
         (select regexp_replace(held.kind, '[^A-Za-z0-9_.-]+', '_', 'g') as folder) as named;
    get diagnostics planned = row_count;
    update sereno.archive_batches set rows = counted, as_texts = texts, columns = (
        select jsonb_agg(jsonb_build_object('name', attname, 'type', format_type(atttypid, atttypmod)) order by attnum)
        from pg_attribute where attrelid = format('sereno_archive.%I', held.held_in)::regclass and attnum > 0 and not attisdropped)
    where id = of_batch;
    return planned;
end $_$;

CREATE FUNCTION sereno.promote_due(look_back double precision) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    moment  timestamptz := sereno.now();
    queues  text[];
begin
    with moved as (
        update sereno.jobs set state = 'ready', ready_seq = nextval('sereno.ready_seq')
        where id = any(array(
            select id from sereno.jobs
            where state = 'scheduled' and run_at <= moment and run_at >= moment - make_interval(secs => look_back)
            order by run_at limit 1000 for update skip locked))
        returning queue
    )
    select array_agg(queue) into queues from moved;
    perform sereno.notify_ready(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    return coalesce(cardinality(queues), 0);
end $$;

CREATE FUNCTION sereno.put_address(recipient text, channel text, address text, tenant text DEFAULT NULL::text, keys jsonb DEFAULT NULL::jsonb, state text DEFAULT 'active'::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    number bigint;
begin
    if channel is null or address is null then
        raise exception 'an address needs a channel and a text' using errcode = 'invalid_parameter_value',
            hint = 'Such as ''email'', ''ada@example.org''.';
    elsif state is null or state not in ('active', 'unverified', 'invalid', 'unsubscribed') then
        raise exception 'an address cannot be "%"', left(state, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is active, unverified, invalid or unsubscribed.';
    elsif jsonb_typeof(keys) <> 'object' then
        raise exception 'keys of an address of % must be an object', left(channel, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"secrets": ["whsec_…"]}; leave it out if there are none.';
    end if;
    perform sereno.check_text('channel', channel), sereno.check_text('address', address, 2000);
    insert into sereno.addresses as a (recipient_id, channel, address, keys, state)
    values (sereno.recipient_id(recipient, tenant), put_address.channel, put_address.address, nullif(put_address.keys, '{}'),
            put_address.state)
    on conflict on constraint addresses_once do update
    set keys = coalesce(excluded.keys, a.keys),
        state = case when a.state = 'unsubscribed' then a.state else excluded.state end,
        reason = case when a.state = 'unsubscribed' then a.reason end, changed_at = sereno.now()
    returning id into number;
    return number;
end $$;

COMMENT ON FUNCTION sereno.put_address(recipient text, channel text, address text, tenant text, keys jsonb, state text) IS 'Add an address of a recipient, or change it, and return its id. state: active, unverified, invalid or unsubscribed.';

CREATE FUNCTION sereno.put_preference(recipient text, tenant text DEFAULT NULL::text, category text DEFAULT NULL::text, event text DEFAULT NULL::text, channel text DEFAULT NULL::text, wanted boolean DEFAULT NULL::boolean, filter jsonb DEFAULT NULL::jsonb, quiet jsonb DEFAULT NULL::jsonb, clear text[] DEFAULT '{}'::text[], digest interval DEFAULT NULL::interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    given   text[] := array_remove(array[case when wanted is not null then 'wanted' end,
                                         case when filter is not null then 'filter' end,
                                         case when quiet is not null then 'quiet' end,
                                         case when digest is not null then 'digest' end], null);
    number  bigint;
begin
    perform sereno.check_text(checked.name, checked.value)
    from (values ('recipient', recipient), ('tenant', tenant), ('category', category), ('event', event), ('channel', channel))
         as checked(name, value);
    clear := coalesce(clear, '{}');
    if not clear <@ array['wanted', 'filter', 'quiet', 'digest'] or clear && given then
        raise exception 'clear names preferences to reset that are not also given: wanted, filter, quiet, digest; not %', clear
            using errcode = 'invalid_parameter_value', hint = 'Such as clear => array[''quiet''].';
    end if;
    if digest not between interval '0' and interval '7 days' then
        raise exception 'messages are collected for 7 days at most, not for %', digest
            using errcode = 'invalid_parameter_value', hint = 'Such as digest => ''1 hour''; ''0'' for each message at once.';
    end if;
    insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted, filter, condition, quiet, digest_seconds)
    values (coalesce(put_preference.tenant, ''), case when recipient is not null then sereno.recipient_id(recipient, tenant) end,
            put_preference.category, put_preference.event, put_preference.channel, put_preference.wanted, put_preference.filter,
            sereno.condition(put_preference.filter), sereno.quiet_spans(put_preference.quiet), extract(epoch from put_preference.digest))
    on conflict on constraint preferences_once do update
    set wanted = case when 'wanted' <> all(clear) then coalesce(excluded.wanted, p.wanted) end,
        filter = case when 'filter' <> all(clear) then coalesce(excluded.filter, p.filter) end,
        condition = case when 'filter' <> all(clear) then coalesce(excluded.condition, p.condition) end,
        quiet = case when 'quiet' <> all(clear) then coalesce(excluded.quiet, p.quiet) end,
        digest_seconds = case when 'digest' <> all(clear) then coalesce(excluded.digest_seconds, p.digest_seconds) end,
        changed_at = sereno.now()
    returning id into number;
    delete from sereno.preferences as p
    where p.id = number and p.wanted is null and p.filter is null and p.quiet is null and p.digest_seconds is null;
    return case when not found then number end;
end $$;

COMMENT ON FUNCTION sereno.put_preference(recipient text, tenant text, category text, event text, channel text, wanted boolean, filter jsonb, quiet jsonb, clear text[], digest interval) IS 'Write a preference, and return its id; without a recipient, the default of the tenant. digest: how long messages of event types with a digest are collected. clear: the fields to clear, of wanted, filter, quiet and digest. Returns null when the preference is empty.';

CREATE FUNCTION sereno.put_recipient(key text, tenant text DEFAULT NULL::text, locale text DEFAULT NULL::text, zone text DEFAULT NULL::text, data jsonb DEFAULT NULL::jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    number bigint;
begin
    if key is null then
        raise exception 'a recipient needs a key' using errcode = 'invalid_parameter_value',
            hint = 'It is the name that your application uses for the recipient, such as user:7.';
    elsif not sereno.is_zone(zone) then
        raise exception 'there is no time zone "%"', left(zone, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is a name such as Europe/Riga: select name from pg_timezone_names';
    elsif jsonb_typeof(data) <> 'object' then
        raise exception 'data of recipient % must be an object', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"name": "Ada"}; leave it out if there is none.';
    elsif octet_length(data::text) > 98304 then
        raise exception 'data of recipient % has % bytes', left(key, 60), octet_length(data::text)
            using errcode = 'invalid_parameter_value', hint = 'At most 96 KiB: store it elsewhere, and store a reference here.';
    end if;
    perform sereno.check_text('key', key), sereno.check_text('tenant', tenant);
    insert into sereno.recipients as r (tenant, key, locale, zone, data)
    values (coalesce(put_recipient.tenant, ''), put_recipient.key, put_recipient.locale, put_recipient.zone, put_recipient.data)
    on conflict on constraint recipients_key do update
    set locale = coalesce(excluded.locale, r.locale), zone = coalesce(excluded.zone, r.zone),
        data = coalesce(excluded.data, r.data), changed_at = sereno.now()
    returning id into number;
    return number;
end $$;

COMMENT ON FUNCTION sereno.put_recipient(key text, tenant text, locale text, zone text, data jsonb) IS 'Create a recipient, or change the given fields, and return its id. Omitted parameters leave values unchanged.';

CREATE FUNCTION sereno.quiet_spans(quiet jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
    week   text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}';
    spans  jsonb := case when jsonb_typeof(quiet) = 'array' then quiet else jsonb_build_array(quiet) end;
    span   jsonb;
    times  text[];
    days   integer[];
    wrong  text;
    result jsonb := '[]';
    busy   int4multirange := '{}';
begin
    if quiet is null then
        return null;
    elsif jsonb_array_length(spans) > 50 then
        wrong := format('there are %s spans of quiet hours, at most 50 are possible', jsonb_array_length(spans));
    end if;
    for span in select jsonb_array_elements(spans) loop
        exit when wrong is not null;
        if jsonb_typeof(span) <> 'object' or (span - array['start', 'end', 'days']) <> '{}' then
            wrong := format('quiet hours have start, end and, if you like, days, not %s', left(span::text, 60));
            exit;
        end if;
        times := array[btrim(span ->> 'start'), btrim(span ->> 'end')];
        if (select count(*) from unnest(times) as t where t ~ '^([01]?[0-9]|2[0-3]):[0-5][0-9]$') < 2 then
            wrong := format('start and end of quiet hours are times of day such as "22:00", not %s', left(span::text, 60));
            exit;
        end if;
        times := array[lpad(times[1], 5, '0'), lpad(times[2], 5, '0')];
        days := (
            select array_agg(distinct coalesce(number, 0)::integer)
            from jsonb_array_elements_text(
                case when jsonb_typeof(span -> 'days') = 'array' then span -> 'days' else '[]' end) as day
            left join unnest(week) with ordinality as w(full_name, number)
              on lower(btrim(day)) in (full_name, left(full_name, 3), number::text));
        if times[1] = times[2] then
            wrong := format('quiet hours from %s to %s have no length: for a whole day write two spans', times[1], times[2]);
        elsif coalesce(jsonb_typeof(span -> 'days'), 'null') <> 'null' and (days is null or 0 = any(days)) then
            wrong := format('days are a list such as ["saturday", "sunday"] or left out, not %s', left((span -> 'days')::text, 60));
        end if;
        result := result || jsonb_build_object('start', times[1], 'end', times[2], 'days', days);
        -- In minutes of the week; a span that passes its end continues at its start.
        busy := busy + (
            select range_agg(int4range(first, last))
            from unnest(coalesce(days, '{1,2,3,4,5,6,7}')) as day,
                 (values (0), (-10080)) as turn(shift),
                 lateral (select (day - 1) * 1440 + shift + extract(epoch from times[1]::time)::integer / 60 as first) as f,
                 lateral (select (day - 1) * 1440 + shift + extract(epoch from times[2]::time)::integer / 60
                                 + case when times[2] <= times[1] then 1440 else 0 end as last) as l);
    end loop;
    if wrong is null and busy @> int4range(0, 10080) then
        wrong := 'these quiet hours cover the whole week and never end';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'invalid_parameter_value',
            hint = 'Write {"start": "22:00", "end": "08:00"}; for nothing at all, wanted => false.';
    end if;
    return result;
end $_$;

CREATE FUNCTION sereno.quiet_until(spans jsonb, zone text, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION sereno.read_lanes(taken_json json, locked bigint[]) RETURNS sereno.taken_lane[]
    LANGUAGE sql
    AS $$
    with own as materialized (
        select key as queue, array(select json_array_elements_text(value -> 0)::bigint) as limiters,
               (value ->> 1)::boolean as has_plain
        from json_each(taken_json -> 5)
    ),
    lane as materialized (
        select (each ->> 0)::bigint as id, each ->> 1 as queue, array(select json_array_elements_text(each -> 2)::bigint) as limiters,
               array(select json_array_elements_text(each -> 3)::integer) as units, (each ->> 4)::bigint as order_id,
               (each ->> 5)::double precision as turn, (each ->> 6)::smallint as floor_priority, (each ->> 7)::bigint as floor_seq,
               (each ->> 8)::bigint as behind, (each ->> 9)::smallint as band, (each ->> 10)::boolean as has_head,
               each ->> 11 as fair, (each ->> 12)::double precision as weight, (each ->> 13)::double precision as clock
        from json_array_elements(taken_json -> 2) as each
    ),
    every as (
        select id, queue, limiters || extra as limiters, units || array_fill(1, array[cardinality(extra)]) as units, order_id,
               case when fair is null or behind is null then turn
                    else greatest(turn, min(turn) filter (where fair is not null and behind is null) over (partition by queue))
                    end as turn,
               floor_priority, floor_seq, behind, band, has_head, fair, weight, clock
        from lane cross join lateral (
            select array(select limiter from own, unnest(own.limiters) as limiter
                         where own.queue = lane.queue and limiter <> all(lane.limiters))) as e(extra)
        union all
        select null, queue, limiters, array_fill(1, array[cardinality(limiters)]), null,
               coalesce((select min(turn) from lane where lane.queue = own.queue), 0), 0, 0, null, 5, null, null, null, null
        from own where has_plain
    )
    select array_agg(row(every.*, true, 0, null)::sereno.taken_lane) from every where limiters <@ locked
    $$;

CREATE FUNCTION sereno.read_limiters(taken_json json) RETURNS sereno.taken_limiter[]
    LANGUAGE sql
    AS $$
    select array_agg(row(id, kind, slots, per_second, burst, tokens, closed, inside.held, checks,
                         case when closed > 0 then 0 when kind = 'rate' then tokens
                              when kind = 'unknown' then 0 else slots - inside.taken end,
                         null, is_due)::sereno.taken_limiter)
    from (select (each ->> 0)::bigint as id, each ->> 1 as kind, (each ->> 2)::integer as slots,
                 (each ->> 3)::double precision as per_second, (each ->> 4)::double precision as burst,
                 (each ->> 5)::double precision as tokens, coalesce((each ->> 6)::double precision, 0) as closed,
                 each -> 7 as list, (each ->> 8)::integer as checks,
                 exists (select from json_array_elements(taken_json -> 4) as free
                         where free ->> 0 = each ->> 0 and (free ->> 1)::boolean) as is_due
          from json_array_elements(taken_json -> 3) as each offset 0) as limiter
    cross join lateral (
        select coalesce(array_agg(number order by slot_group * (not is_alone)::integer, place), '{}') as held,
               coalesce(sum(case when is_alone then 1 when number < 0 then -number else 0 end), 0) as taken
        from (select *, count(*) filter (where number > 0) over (partition by slot_group)
                        <= coalesce(-min(number) filter (where number < 0) over (partition by slot_group), 1e9) as is_alone
              from (select number, place, count(*) filter (where number < 0) over (order by place) as slot_group
                    from (select value::bigint as number, place
                          from json_array_elements_text(list) with ordinality as e(value, place)) as listed) as numbered
              where number < 0 or exists (
                  select from sereno.jobs
                  where jobs.id = number and state = 'running'
                    and (attempt = 1 or kind = 'rate' or limiter.id in (select sereno.limiters_of(jobs.queue, jobs.keys))))) as live
        where number > 0 or not is_alone) as inside
    $$;

CREATE FUNCTION sereno.read_outcomes(outcomes jsonb) RETURNS SETOF sereno.outcome
    LANGUAGE plpgsql STABLE
    AS $$
declare
    item   jsonb;
    given   sereno.outcome;
    wrong  text := case when coalesce(jsonb_typeof(outcomes), 'null') <> 'array' then 'they are not a list'
                        when jsonb_array_length(outcomes) > 1000 then 'there are more than 1000' end;
    seen   bigint[] := '{}';
begin
    for item in select * from jsonb_array_elements(case when wrong is null then outcomes else '[]' end) loop
        if jsonb_typeof(item) <> 'object' then
            wrong := 'this is not an object: ' || left(item::text, 60);
            exit;
        end if;
        select 'job ' || left(item ->> 'id', 30) || ': "' || left(key, 30) || '" cannot be ' || left(value::text, 60) into wrong
        from jsonb_each(item)
        where case when key in ('id', 'attempt', 'delay', 'retries', 'seconds') then jsonb_typeof(value) not in ('number', 'null')
                   when key = 'history' then jsonb_typeof(value) not in ('boolean', 'null')
                   when key = 'result' then octet_length(value::text) > 1048576
                   else key not in ('outcome', 'until', 'reason', 'error_type', 'error_message', 'traceback', 'frame')
                        or jsonb_typeof(value) not in ('string', 'null') end;
        exit when wrong is not null;
        given := jsonb_populate_record(null::sereno.outcome, item);
        wrong := 'job ' || coalesce(given.id::text, '(null)') || ': ' || case
            when given.id is null or given.attempt is null then 'the id and the attempt must be as sereno.claim_jobs gave them'
            when given.id = any(seen) then 'it is listed twice'
            when coalesce(given.outcome, '') not in ('succeeded', 'retry', 'snooze', 'release', 'crash', 'dead', 'cancelled')
                then 'it cannot end as ' || coalesce('"' || left(given.outcome, 30) || '"', 'null')
            when given.outcome = 'snooze' and given.delay is null and given.until is null then 'a snooze needs a delay, or until'
            when given.delay not between 0 and 3e9 or given.seconds not between 0 and 3e9 or given.retries < 0
                then 'delay, seconds and retries are not negative, and not more than a hundred years'
            when given.until not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then 'until is out of range: 1900 to 9999' end;
        exit when wrong is not null;
        seen := seen || given.id;
        given.reason := nullif(left(given.reason, 4000), '');
        given.error_type := nullif(left(given.error_type, 200), '');
        given.error_message := left(given.error_message, 4000);
        given.traceback := right(given.traceback, 16000);
        given.frame := left(given.frame, 200);
        return next given;
    end loop;
    if wrong is not null then
        raise exception 'outcomes: %', wrong using errcode = 'invalid_parameter_value',
            hint = 'A list of objects, such as [{"id": 7, "attempt": 1, "outcome": "succeeded"}]; nothing was changed.';
    end if;
end $$;

CREATE FUNCTION sereno.read_results(session bigint, id bigint, attempt integer) RETURNS SETOF sereno.job_result
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    own     sereno.sessions := sereno.own_session(session);
    waited  jsonb;
begin
    select links into waited from sereno.jobs
    where jobs.id = read_results.id and jobs.attempt = read_results.attempt and session_id = session
      and own.state = 'alive' and own.lease_until > sereno.clock_now();
    return query select found.id, found.task, found.result from sereno.results_of(waited) as found order by found.id;
end $$;

CREATE FUNCTION sereno.ready_queues() RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    with recursive plain(queue) as (
        (select queue from sereno.jobs where state = 'ready' and lane is null order by queue limit 1)
        union all
        select (select jobs.queue from sereno.jobs where state = 'ready' and lane is null and jobs.queue > plain.queue
                order by jobs.queue limit 1)
        from plain where plain.queue is not null
    ),
    limited(queue) as (
        (select queue from sereno.jobs where state = 'ready' and lane is not null order by queue limit 1)
        union all
        select (select jobs.queue from sereno.jobs where state = 'ready' and lane is not null and jobs.queue > limited.queue
                order by jobs.queue limit 1)
        from limited where limited.queue is not null
    )
    select queue from plain where queue is not null union select queue from limited where queue is not null
    $$;

CREATE FUNCTION sereno.ready_ranges(queues text[], floors jsonb, passed_over jsonb, looks_back boolean, turned boolean) RETURNS sereno.ready_range[]
    LANGUAGE sql
    AS $$
    select array_agg(row(name, level, low, high, most, is_back)::sereno.ready_range order by place, chance, is_back desc)
    from (select name, random() as chance from unnest(queues) as served(name) offset 0) as open_queue
    cross join (select level::smallint, case when turned then -level else level end as place
                from generate_series(0, 9) as level) as step
    cross join lateral (
        select coalesce((floors ->> (name || ':' || level))::bigint, 0) as floor,
               coalesce((passed_over -> 'from' ->> (name || ':' || level))::bigint, 0) as walked) as known
    cross join lateral (
        select floor as low, 9223372036854775807 as high, sereno.most_read('floor') as most, false as is_back
        union all
        select walked, floor, sereno.most_read('back'), true where looks_back and passed_over is not null and walked < floor) as part
    $$;

CREATE FUNCTION sereno.ready_requirements() RETURNS TABLE(queue text, task text, requires jsonb)
    LANGUAGE sql STABLE
    AS $$
    with recursive found as (
        (select jobs.queue, jobs.task, jobs.requires from sereno.jobs
         where jobs.state = 'ready' and jobs.requires is not null
         order by jobs.queue, jobs.task, jobs.requires limit 1)
        union all
        select next.queue, next.task, next.requires
        from found cross join lateral (
            select jobs.queue, jobs.task, jobs.requires from sereno.jobs
            where jobs.state = 'ready' and jobs.requires is not null
              and (jobs.queue, jobs.task, jobs.requires) > (found.queue, found.task, found.requires)
            order by jobs.queue, jobs.task, jobs.requires limit 1
        ) as next
    )
    select found.queue, found.task, found.requires from found
$$;

CREATE FUNCTION sereno.recheck(names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    left_over integer;
begin
    for attempt in 1..20 loop
        with waited as materialized (
            select id from sereno.limiters
            where limit_name = any(names) and check_at is not null and (attempt = 1 or check_at > sereno.now())
        ),
        locked as materialized (
            select id from sereno.limiters where id = any(array(select id from waited)) order by id for update skip locked
        ),
        checked as (
            update sereno.limiters set check_at = sereno.now() where id = any(array(select id from locked)) returning id
        )
        select (select count(*) from waited) - (select count(*) from checked) into left_over;
        exit when left_over = 0;
        perform pg_sleep(0.01);
    end loop;
end $$;

CREATE FUNCTION sereno.recheck_links() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    update sereno.dependencies set to_check = true where predecessor = old.id and not to_check;
    insert into sereno.dependencies (predecessor, successor, to_check)
    select old.id, then_job, true from sereno.groups
    where id = old.group_id and then_job is not null and on_dead = 'wait'
      and not exists (select from sereno.jobs where jobs.id = old.id)
      and exists (select from sereno.jobs where jobs.id = then_job and state = 'waiting')
    on conflict do nothing;
    insert into sereno.deleted_jobs (id)
    select old.id
    where exists (select from sereno.dependencies where predecessor = old.id)
      and not exists (select from sereno.jobs where jobs.id = old.id)
    on conflict do nothing;
    return null;
end $$;

CREATE FUNCTION sereno.recipient_id(key text, tenant text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare
    number bigint := (select id from sereno.recipients r
                      where r.tenant = coalesce(recipient_id.tenant, '') and r.key = recipient_id.key);
begin
    if number is null then
        raise exception 'there is no recipient "%"', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Create the recipient first: select sereno.put_recipient(…)';
    end if;
    return number;
end $$;

CREATE FUNCTION sereno.refuse_filter(wrong text, VARIADIC parts text[] DEFAULT '{}'::text[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    raise exception '%', format(wrong, variadic array(
            select left(part, 60) from unnest(parts) with ordinality as p(part, n) order by n))
        using errcode = 'invalid_parameter_value',
        hint = 'A filter is an object such as {"region": ["RM", "V"], "amount": {"min": 1000}}; {} says: always.';
end $$;

CREATE FUNCTION sereno.release_lost_jobs() RETURNS SETOF bigint
    LANGUAGE plpgsql
    AS $$
declare
    owners    bigint[];
    limiters  bigint[];
    queues    text[];
begin
    update sereno.sessions set state = 'dead', idle = false, ended_at = sereno.now()
    where id = any(array(select id from sereno.sessions where state = 'alive' and lease_until < sereno.now()
                         order by id for update skip locked));
    with suspect as materialized (
        select id, session_id from sereno.jobs
        where state = 'running'
          and session_id = any(array(select id from sereno.sessions
                                     where state <> 'alive' and ended_at > sereno.now() - interval '1 hour'))
        limit 1000
    ),
    orphan as materialized (
        select id, attempt, session_id, claimed_at, queue, keys, crashes
        from sereno.jobs
        where id = any(array(select id from suspect)) and session_id = any(array(select session_id from suspect))
          and state = 'running'
        order by id for update skip locked
    ),
    judged as materialized (
        select *, sereno.part_in_death(id, attempt, crashes, session_id) as part from orphan
    ),
    moved as (
        update sereno.jobs
        set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null,
            crashes = case part when 'alone' then jobs.crashes + 1 when 'began' then greatest(jobs.crashes, 1) else jobs.crashes end,
            releases = releases + (part in ('left', 'waited', 'advanced'))::integer
        from judged
        where jobs.id = any(array(select id from suspect)) and jobs.id = judged.id
    ),
    tried as (
        insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason)
        select id, attempt, session_id, claimed_at, sereno.now(),
               case when part in ('alone', 'began') then 'crash' else 'release' end, sereno.words_for_death(part, session_id)
        from judged
    )
    select array_agg(session_id), array_agg(queue),
           (select array_agg(limiter) from orphan cross join lateral sereno.limiters_of(orphan.queue, orphan.keys) as limiter)
    into owners, queues, limiters from orphan;
    perform sereno.notify_ready(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    perform sereno.hand_over(limiters);
    return query select * from unnest(owners);
end $$;

CREATE FUNCTION sereno.reread_lanes() RETURNS bigint
    LANGUAGE sql
    AS $$
    with woken as (
        insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
        select lanes.id, lanes.queue, first.priority, first.ready_seq
        from sereno.lanes cross join lateral (
            select priority, ready_seq from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue and jobs.lane = lanes.id
            order by priority, ready_seq limit 1) as first
        where lanes.passed_over and lanes.has_work
          and (first.priority, first.ready_seq) < (lanes.floor_priority, lanes.floor_seq)
        returning lane)
    select count(*) from woken
    $$;

CREATE FUNCTION sereno.reread_lanes_of_resumed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform sereno.reread_lanes();
    return null;
end $$;

CREATE FUNCTION sereno.restore_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamp with time zone, to_at timestamp with time zone, until timestamp with time zone, without text[], OUT matched bigint, OUT restored bigint, OUT present bigint) RETURNS record
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $_$
declare
    names text[];
begin
    perform sereno.hold_table(of_batch);
    select array_agg(attname::text order by attnum) into names from pg_attribute
    where attrelid = (select format('sereno_archive.%I', held_in)::regclass from sereno.archive_batches where id = of_batch)
      and attnum > 0 and not attisdropped;
    execute sereno.restore_query(of_batch, names, without, sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at), 'h.%2$I')
    into matched, restored, present using null::text, until;
end $_$;

CREATE FUNCTION sereno.restore_parent(of_kind text, OUT kind text, OUT refers text) RETURNS record
    LANGUAGE sql IMMUTABLE
    AS $$
    select case of_kind when 'attempts' then 'jobs' when 'receipts' then 'deliveries' end,
           case of_kind when 'attempts' then 'job_id' when 'receipts' then 'delivery_id' end
$$;

CREATE FUNCTION sereno.restore_query(of_batch bigint, names text[], without text[], origin text, value_of text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    held sereno.archive_batches;
    parent record;
    target regclass;
    lost text;
    taken text[];
    given_values text[];
    is_there text;
begin
    select * into strict held from sereno.archive_batches where id = of_batch;
    parent := sereno.restore_parent(held.kind);
    target := sereno.restore_target(held.kind, held.source);
    if target is null then
        raise exception 'there is no table % any more', held.source using errcode = 'object_not_in_prerequisite_state',
            hint = 'Create it again, or export the rows: sereno archive export';
    end if;
    select string_agg(name, ', ') into lost from unnest(names) as name
    where name <> all(without) and not exists (select from pg_attribute where attrelid = target and attname = name and attnum > 0 and not attisdropped);
    if lost is not null or without && held.key_columns then
        raise exception '% no longer has what the archive has: %', held.source, coalesce(lost, array_to_string(held.key_columns, ', '))
            using errcode = 'object_not_in_prerequisite_state', hint = 'Add the columns again, or leave them out: --without COLUMN';
    end if;
    -- The type without its length: a value that no longer fits is refused, not truncated.
    select array_agg(quote_ident(attname) order by place),
           array_agg(case when held.kind = 'jobs' and attname = 'keys' then '(' || written || ') - ''blocks''' else written end
                     || ' as ' || quote_ident(attname) order by place)
    into taken, given_values
    from unnest(names) with ordinality as named (name, place)
    join pg_attribute on attrelid = target and attname = name and attnum > 0 and not attisdropped and attgenerated = ''
    cross join lateral (select format('(' || value_of || ')::%3$s', place - 1, name, format_type(atttypid, -1))) as cast_to (written)
    where name <> all(without);
    is_there := format('exists (select from %s as t where %s)', target,
                       (select string_agg(format('t.%1$I = g.%1$I', name), ' and ') from unnest(held.key_columns) as name))
                || case when held.kind = 'jobs' then ' or exists (select from sereno.jobs as j where j.id = g.id)' else '' end;
    return format(
        $query$with given as materialized (select %1$s from %2$s),
        wanted as materialized (select * from given as g where %3$s),
        there as materialized (select %4$s as key from wanted as g where %5$s),
        fresh as (
            insert into %6$s as sereno_row (%7$s) overriding system value
            select %7$s from wanted as g where %4$s not in (select key from there)
            on conflict do nothing
            returning %8$s as key, md5((sereno_row.*)::text) as digest),
        marked as (
            insert into sereno.restored (kind, key, batch_id, digest, until)
            select %9$L, key, %10$s, digest, $2 from fresh
            on conflict (kind, key) do update
            set batch_id = excluded.batch_id, digest = excluded.digest, until = excluded.until, restored_at = excluded.restored_at),
        prolonged as (
            update sereno.restored set until = $2 where kind = %9$L and key in (select key from there) and until < $2)
        select (select count(*) from wanted), (select count(*) from fresh), (select count(*) from there)$query$,
        array_to_string(given_values, ', '), origin,
        case when parent.kind is null then 'true' else
            format('exists (select from sereno.restored r where r.kind = %L and r.key = g.%I::text)', parent.kind, parent.refers) end,
        sereno.archive_key(target, held.key_columns, 'g.'), is_there, target, array_to_string(taken, ', '),
        sereno.archive_key(target, held.key_columns, 'sereno_row.'), held.kind, of_batch);
end $_$;

CREATE FUNCTION sereno.restore_rows(of_batch bigint, names text[], rows jsonb, until timestamp with time zone, without text[], OUT matched bigint, OUT restored bigint, OUT present bigint) RETURNS record
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET extra_float_digits TO '1'
    SET bytea_output TO 'hex'
    AS $_$
begin
    execute sereno.restore_query(of_batch, names, without, 'jsonb_array_elements($1) as r', 'r ->> %1$s')
    into matched, restored, present using rows, until;
end $_$;

CREATE FUNCTION sereno.restore_target(of_kind text, source text) RETURNS regclass
    LANGUAGE sql STABLE
    AS $$
    select to_regclass(case of_kind when 'jobs' then 'sereno.history' when 'fires' then 'sereno.fires' else source end)
$$;

CREATE FUNCTION sereno.results_of(links jsonb) RETURNS SETOF sereno.job_result
    LANGUAGE sql STABLE
    AS $$
    with named as materialized (
        select value::bigint as id from jsonb_array_elements_text(coalesce(results_of.links -> 'after', '[]'))
    )
    select named.id, past.task, past.result
    from named
    left join (select id, task, result from sereno.history where id = any(array(select id from named))) as past
        on past.id = named.id
    union all
    select id, task, result from sereno.history where group_id = (results_of.links ->> 'of')::bigint
$$;

CREATE FUNCTION sereno.returns_to_work(state text, note text, wanted text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((state = 'disabled'::text) AND (NOT (note IS DISTINCT FROM 'left the code'::text)) AND (wanted = 'enabled'::text));
END;

CREATE FUNCTION sereno.schedule(key text, task text, args jsonb DEFAULT '{}'::jsonb, cron text DEFAULT NULL::text, every interval DEFAULT NULL::interval, at timestamp with time zone DEFAULT NULL::timestamp with time zone, daily text DEFAULT NULL::text, tz text DEFAULT 'UTC'::text, queue text DEFAULT 'default'::text, priority integer DEFAULT 5, tenant text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, missed text DEFAULT 'latest'::text, overlap text DEFAULT 'skip'::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz := sereno.clock_now();
    rule jsonb;
    found_id bigint;
begin
    if num_nonnulls(cron, every, at, daily) <> 1 then
        raise exception 'schedule %: give exactly one of cron, every, at and daily', key
            using errcode = 'invalid_parameter_value';
    end if;
    perform sereno.check_task(task), sereno.check_schedule(key);
    rule := case
        when cron is not null then jsonb_build_object('kind', 'cron', 'expression', cron, 'tz', tz)
        when daily is not null then jsonb_build_object('kind', 'daily', 'at', daily, 'tz', tz)
        when at is not null then jsonb_build_object('kind', 'once', 'at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
        else jsonb_build_object('kind', 'every', 'interval', extract(epoch from every))
    end;
    insert into sereno.schedules as s (key, task, args, rule, queue, priority, tenant, unique_key, missed, overlap,
                                       templated, planned, next_run_at, created_at, changed_at, changed_by)
    values (schedule.key, schedule.task, schedule.args, rule, schedule.queue, schedule.priority, schedule.tenant,
            schedule.unique_key, schedule.missed, schedule.overlap,
            concat(schedule.args::text, schedule.unique_key) ~ '\{(fire|date|key|tenant)[:}]', false, moment, moment,
            moment, sereno.caller())
    on conflict on constraint schedules_key do update
        set task = excluded.task, args = excluded.args, queue = excluded.queue, priority = excluded.priority,
            tenant = excluded.tenant, unique_key = excluded.unique_key, missed = excluded.missed,
            overlap = excluded.overlap, templated = excluded.templated,
            rule = case when sereno.keeps_rule(s.rule, excluded.rule) then s.rule else excluded.rule end,
            shift = case when sereno.keeps_rule(s.rule, excluded.rule) then s.shift else 0 end,
            changed_at = moment, changed_by = excluded.changed_by,
            note = case when s.state in ('parked', 'finished') then null else s.note end,
            state = case when s.state in ('paused', 'disabled') then s.state else 'enabled' end,
            planned = s.planned and s.state = 'enabled'
                      and (sereno.keeps_rule(s.rule, excluded.rule) or coalesce(s.paused_until > moment, false)),
            next_run_at = case
                when s.state in ('paused', 'disabled') then null
                -- Same rule as before, or paused for a while: the planned fire stays.
                when s.state = 'enabled'
                     and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment) then s.next_run_at
                else moment end
        where (s.task, s.args, s.queue, s.priority, s.tenant, s.unique_key, s.missed, s.overlap)
              is distinct from (excluded.task, excluded.args, excluded.queue, excluded.priority, excluded.tenant,
                                excluded.unique_key, excluded.missed, excluded.overlap)
           or not sereno.keeps_rule(s.rule, excluded.rule)
    returning id into found_id;
    if found_id is null then
        -- The schedule exists and nothing has changed.
        select id into found_id from sereno.schedules s where s.key = schedule.key;
    else
        perform sereno.wake_scheduler(moment);
    end if;
    return found_id;
end $$;

COMMENT ON FUNCTION sereno.schedule(key text, task text, args jsonb, cron text, every interval, at timestamp with time zone, daily text, tz text, queue text, priority integer, tenant text, unique_key text, missed text, overlap text) IS 'Create or change a schedule in the current transaction, and return its id. Give exactly one of cron, every, at and daily. The scheduler reads the rule; an invalid one is parked, and its note has the reason. missed: skip, latest or all. overlap: skip, allow, queue_one or cancel_previous.';

CREATE FUNCTION sereno.settle_jobs(session bigint, outcomes jsonb, strict boolean DEFAULT false) RETURNS SETOF sereno.settled_job
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    own       sereno.sessions := sereno.own_session(session);
    moment    timestamptz := sereno.clock_now();
    items     sereno.outcome[] := array(select given from sereno.read_outcomes(outcomes) as given);
    ids       bigint[] := array(select id from unnest(items));
    is_alive  boolean := coalesce(own.state = 'alive' and own.lease_until > moment, false);
    done      sereno.settled_job[];
    limiters  bigint[];
    linked_ids     bigint[];
    linked_groups  bigint[];
    linked_states  text[];
    results   sereno.settled_job[];
begin
    with held as materialized (
        select * from sereno.jobs where id = any(ids) and session_id = session and is_alive order by id for update
    ),
    mine as materialized (
        select held.*, given.outcome as given, given.reason, given.error_type, given.error_message, given.traceback, given.frame,
               given.history, given.result, decided, decided in ('retry', 'snooze', 'release', 'crash') as continues,
               case when given.seconds is null then held.claimed_at
                    else greatest(held.claimed_at, moment - make_interval(secs => given.seconds)) end as started_at,
               case when given.outcome = 'release' then held.run_at
                    else greatest(given.until, moment + make_interval(secs => coalesce(given.delay, case
                        when given.until is not null then 0
                        when given.outcome = 'retry' then least(3600, 60 * 2 ^ least(held.failures, 10)) * (1 + random() / 10)
                        else 60 * (1 + random() / 10) end))) end as due,
               case when decided in ('retry', 'crash', 'dead') then sereno.fingerprint_of(
                   held.task, coalesce(given.error_type, initcap(given.outcome)), coalesce(given.error_message, given.reason, ''),
                   coalesce(given.frame, '')) end as fingerprint
        from held join unnest(items) as given on given.id = held.id and given.attempt = held.attempt
        cross join lateral (select case
            when given.outcome = 'retry' and held.failures >= coalesce(given.retries, 10) then 'dead'
            when given.outcome = 'crash' and held.crashes >= 2 then 'dead'
            when held.cancel_requested and given.outcome not in ('succeeded', 'dead', 'cancelled') then 'stopped'
            else given.outcome end) as d(decided)
    ),
    moved as (
        update sereno.jobs
        set run_at = due, state = case when due <= moment then 'ready' else 'scheduled' end,
            ready_seq = case when due <= moment then nextval('sereno.ready_seq') end, session_id = null,
            failures = mine.failures + (given = 'retry')::integer, crashes = mine.crashes + (given = 'crash')::integer,
            snoozes = mine.snoozes + (given = 'snooze')::integer, releases = mine.releases + (given = 'release')::integer
        from mine where jobs.id = any(ids) and jobs.id = mine.id and continues
    ),
    tried as (
        insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason, error_type,
                                     error_message, traceback, fingerprint)
        select id, attempt, session_id, started_at, moment, given, reason, error_type, error_message, traceback, fingerprint
        from mine where continues
    ),
    ending as materialized (
        select *, case when decided = 'stopped' then 'cancelled' else decided end as final, case
                   when decided = 'dead' and given = 'retry' then 'failed ' || failures + 1 || ' times'
                   when decided = 'dead' and given = 'crash'
                       then 'crash loop: ' || coalesce(reason || ', ', '') || crashes + 1 || ' times'
                   when decided = 'dead' then coalesce(reason, 'permanent error: ' || error_type, 'reported by the worker')
                   when decided = 'cancelled' then coalesce(reason, 'reported by the worker')
                   when decided = 'stopped' then coalesce(reason, 'cancelled while running') end as cause
        from mine where not continues
    ),
    gone as (delete from sereno.jobs where id = any(array(select id from ending))),
    stored as (
        insert into sereno.history (
            id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
            releases, priority, state, queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for,
            keys, requires, group_id, links, reason, error_type, error_message, traceback, fingerprint, result)
        select id, session_id, moment, started_at, run_at, created_at, expires_at, attempt,
               failures + (given in ('retry', 'dead'))::integer, crashes + (given = 'crash')::integer,
               snoozes + (given = 'snooze')::integer, releases + (given = 'release')::integer, priority, final, queue, task, tenant,
               unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links, cause, error_type,
               error_message, traceback, fingerprint, case when final = 'succeeded' then nullif(result, 'null') end
        from ending where final <> 'succeeded' or history is not false
    ),
    ended as (
        insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
        select schedule_id, id, final, moment,
               case when decided in ('dead', 'cancelled') then coalesce(error_type || ': ' || error_message, cause) end
        from ending where schedule_id is not null
    ),
    steps as (delete from sereno.steps where job_id = any(array(select id from ending))),
    waits as (delete from sereno.signal_waits where job_id = any(array(select id from ending))),
    progress as (delete from sereno.progress where job_id = any(array(select id from ending))),
    counted as (
        insert into sereno.ended_attempts (at, queue, task, tenant, outcome, waited, ran, failures, job_id, fingerprint, error_type,
                                           message, frame)
        select moment, queue, task, tenant, case when decided = 'stopped' then given else decided end,
               extract(epoch from claimed_at - run_at), extract(epoch from greatest(moment - started_at, interval '0')),
               failures, id, fingerprint, coalesce(error_type, initcap(given)), coalesce(error_message, reason, ''),
               coalesce(frame, '')
        from mine
    )
    select array_agg(row(id, attempt, true, coalesce(final, case when due <= moment then 'ready' else 'scheduled' end),
                         case when continues then due end, null)::sereno.settled_job),
           (select array_agg(limiter) from mine cross join lateral sereno.limiters_of(mine.queue, mine.keys) as limiter),
           (select array_agg(id order by id) from ending where group_id is not null or has_successors),
           (select array_agg(coalesce(group_id, 0) order by id) from ending where group_id is not null or has_successors),
           (select array_agg(final order by id) from ending where group_id is not null or has_successors)
    into done, limiters, linked_ids, linked_groups, linked_states
    from mine left join (select id as ended_id, final from ending) as e on ended_id = id;
    -- A separate statement, and only if needed: it opens every partition of the attempts.
    if exists (select from unnest(items) where history is false and attempt > 1) then
        delete from sereno.attempts
        where job_id = any(array(select d.id from unnest(done) as d join unnest(items) as given on given.id = d.id
                                 where d.state = 'succeeded' and given.history is false and given.attempt > 1));
    end if;
    perform sereno.end_links(linked_ids, linked_groups, linked_states) where linked_ids is not null;
    perform sereno.hand_over(limiters);
    perform sereno.notify_finished(array(select d.id from unnest(done) as d where d.run_at is null))
    where exists (select from sereno.waiters);
    perform sereno.notify_ready(queue, min(extract(epoch from run_at - moment))::double precision)
    from sereno.jobs where id = any(ids) and id in (select d.id from unnest(done) as d where d.run_at is not null) group by queue;

    -- A separate statement, for attempts that were not written now: was it written before, and the reply was lost? A
    -- rescue records the attempt too, with another reason.
    select array_agg(coalesce(did, row(given.id, given.attempt, past.state is not null, past.state, null, case
               when past.state is not null then 'it was written before'
               when is_alive then 'the session does not have this attempt of it'
               else 'the session has no lease' end)::sereno.settled_job) order by given.ordinality)
    into results
    from unnest(items) with ordinality as given
    left join unnest(done) as did on did.id = given.id
    left join lateral (
        select state from sereno.history
        where history.id = given.id and history.attempt = given.attempt and session_id = session and did.id is null
        union all
        select coalesce((select jobs.state from sereno.jobs where jobs.id = given.id), 'ended') from sereno.attempts
        where job_id = given.id and number = given.attempt and session_id = session and outcome = given.outcome
          and reason is not distinct from given.reason and did.id is null
        limit 1) as past on true;
    if strict and exists (select from unnest(results) where not settled) then
        raise exception 'job % could not be settled: %', (select id from unnest(results) where not settled limit 1),
            (select why from unnest(results) where not settled limit 1)
            using errcode = 'SR002', hint = 'Another session has the job, or will get it: roll back this transaction.';
    end if;
    return query select * from unnest(results);
end $$;

COMMENT ON FUNCTION sereno.settle_jobs(session bigint, outcomes jsonb, strict boolean) IS 'Report the outcomes of up to 1000 attempts. One row for each, in their order: whether it was settled, the new state of the job, and why not. strict: raise SR002 when one of them is not settled.';

CREATE FUNCTION sereno.share_reading(source regclass, target regclass) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    reader text;
begin
    for reader in
        select distinct case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end
        from pg_class cross join lateral aclexplode(relacl) as given
        where pg_class.oid = source and privilege_type = 'SELECT' and grantee <> relowner
    loop
        execute format('grant select on %s to %s', target, reader);
    end loop;
end $$;

CREATE FUNCTION sereno.shown(value jsonb, most integer DEFAULT NULL::integer) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $_$
    select case
        when octet_length(value::text) > most
        then jsonb_build_object('not shown', format('%s bytes: open it alone', octet_length(value::text)))
        when value @? '$.**{200 to last}'
        then jsonb_build_object('not shown', 'nested more than 200 levels deep')
        else value
    end
$_$;

CREATE FUNCTION sereno.signal(name text, value jsonb DEFAULT 'null'::jsonb, tenant text DEFAULT NULL::text, trace text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    moment  timestamptz := sereno.clock_now();
    made    bigint;
    woken   record;
begin
    if coalesce(length(signal.name), 0) not between 1 and 200 or length(signal.tenant) not between 1 and 500
       or length(signal.trace) not between 1 and 500 then
        raise exception 'signal "%": a name has 1 to 200 characters, and a tenant 1 to 500, as a trace', left(signal.name, 60)
            using errcode = 'invalid_parameter_value', hint = 'Put longer texts into the value.';
    end if;
    insert into sereno.signals (name, tenant, value, trace, sent_at)
    values (signal.name, signal.tenant, coalesce(signal.value, 'null'), signal.trace, moment)
    returning id into made;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        if coalesce(current_setting('sereno.notify', true), '') <> 'off' and exists (select from sereno.sessions where idle) then
            perform pg_notify('sereno.due', '0 ');
        end if;
        return made;
    end if;
    for woken in
        with waiting as materialized (
            select waits.job_id, waits.attempt
            from sereno.signal_waits waits
            join sereno.jobs on jobs.id = waits.job_id and jobs.attempt = waits.attempt and jobs.state = 'scheduled'
            where waits.name = signal.name and coalesce(waits.tenant, '') = coalesce(signal.tenant, '')
              and waits.attempt is not null
            order by waits.job_id limit 1000
        ),
        locked as materialized (
            select id from sereno.jobs
            where id = any(array(select job_id from waiting)) and state = 'scheduled'
              and (id, attempt) in (select job_id, waiting.attempt from waiting)
            order by id
            for update skip locked
        ),
        moved as (
            update sereno.jobs set state = 'ready', run_at = moment, ready_seq = nextval('sereno.ready_seq')
            where id = any(array(select id from locked))
            returning id, queue
        ),
        -- A worker may be checking the wait at this moment; then the row stays, and its attempt ends with the next claim.
        unlocked as materialized (
            select waits.job_id, waits.name from sereno.signal_waits waits
            where waits.job_id = any(array(select id from locked)) and waits.attempt is not null
            for update skip locked
        ),
        disarmed as (
            update sereno.signal_waits waits set attempt = null, is_checked = true
            from unlocked where waits.job_id = unlocked.job_id and waits.name = unlocked.name
        )
        select queue from moved group by queue
    loop
        perform sereno.notify_ready(woken.queue, 0);
    end loop;
    return made;
end $$;

COMMENT ON FUNCTION sereno.signal(name text, value jsonb, tenant text, trace text) IS 'Send a signal in the current transaction to the jobs that wait for its name, now or later, and return its id.';

CREATE FUNCTION sereno.slots_taken(held bigint[]) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    select coalesce(sum(taken), 0)::bigint
    from (select least(-min(number) filter (where number < 0), count(jobs.id)) as taken
          from (select number, count(*) filter (where number < 0) over (order by place) as slot_group
                from unnest(held) with ordinality as list(number, place)) as each
          left join sereno.jobs on jobs.id = number and state = 'running'
          group by slot_group) as slot_group
    $$;

CREATE FUNCTION sereno.span(micros bigint) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((micros)::double precision * '00:00:00.000001'::interval);
END;

CREATE FUNCTION sereno.start_over(for_session bigint) RETURNS void
    LANGUAGE sql
    AS $$
    update sereno.sessions set passed_over = null, floors = '{}', look_back_at = null
    where id = any(array(select id from sereno.sessions where id = for_session for update skip locked))
    $$;

CREATE FUNCTION sereno.subscribe(topic text, recipient text, tenant text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    if topic is null or recipient is null then
        raise exception 'a subscription needs a topic and a recipient' using errcode = 'invalid_parameter_value',
            hint = 'Such as ''tender:r42'', ''user:7''.';
    end if;
    perform sereno.check_text('topic', topic), sereno.check_text('recipient', recipient), sereno.check_text('tenant', tenant);
    insert into sereno.subscriptions (tenant, topic, recipient_id)
    values (coalesce(subscribe.tenant, ''), subscribe.topic, sereno.recipient_id(recipient, subscribe.tenant))
    on conflict on constraint subscriptions_once do nothing;
    return found;
end $$;

COMMENT ON FUNCTION sereno.subscribe(topic text, recipient text, tenant text) IS 'Subscribe a recipient to a topic, and return whether the subscription is new. The recipient must exist.';

CREATE FUNCTION sereno.take_batches(of_purpose text, by_channel text, of_account text, by_job bigint, most integer, again interval DEFAULT NULL::interval, in_queue text DEFAULT 'notifications'::text) RETURNS TABLE(batch bigint, ids bigint[])
    LANGUAGE plpgsql
    AS $$
declare
    waiting cursor for
        select b.id, b.deliveries, b.due_at, b.ends_at, b.gathers from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.queue = in_queue and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id
        for update skip locked;
    found_one record;
    remaining integer := most;
    waited boolean := false;
    locked_batch bigint;
    taken bigint[] := '{}';
begin
    if exists (select from sereno.channel_pauses p where p.channel = by_channel and p.account in ('', of_account)) then
        return;
    end if;
    -- One transaction at a time takes batches with digests: two would send two messages of one digest.
    if of_purpose = 'send' and exists (select from sereno.batches b where b.gathers and b.job_id is null and b.channel = by_channel
                 and b.account = of_account and b.queue = in_queue and b.due_at <= sereno.now()) then
        perform pg_advisory_xact_lock(hashtext('sereno gathers by ' || by_channel), hashtext(of_account));
    end if;
    loop
        -- A row that was taken and committed after the cursor's snapshot is locked, and only then found to belong to
        -- another job; SKIP LOCKED does not help there. Such locks, held while this transaction waited, met those of
        -- the jobs that own these batches: a deadlock. So a caller that found nothing releases every lock before it
        -- waits (by the rollback of this block), waits for one batch, and releases that one too.
        begin
            open waiting;
            while remaining > 0 loop
                fetch waiting into found_one;
                exit when not found;
                batch := found_one.id;
                ids := found_one.deliveries[:remaining];
                if cardinality(found_one.deliveries) > remaining then
                    update sereno.batches b set deliveries = found_one.deliveries[remaining + 1:] where b.id = found_one.id;
                    insert into sereno.batches (purpose, channel, account, queue, due_at, ends_at, gathers, deliveries)
                    values (of_purpose, by_channel, of_account, in_queue, found_one.due_at, found_one.ends_at, found_one.gathers, ids)
                    returning id into batch;
                end if;
                taken := taken || batch;
                remaining := remaining - cardinality(ids);
                return next;
            end loop;
            close waiting;
            exit when remaining <= 0 or remaining < most or waited;
            raise exception using errcode = 'SRWT1', message = 'no batch was free';
        exception when sqlstate 'SRWT1' then
            waited := true;
        end;
        -- Other transactions have locked what is due, and may leave some of it: wait for them once.
        select b.id into locked_batch from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.queue = in_queue and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id limit 1;
        exit when locked_batch is null;
        begin
            perform from sereno.batches b where b.id = locked_batch for update;
            raise exception using errcode = 'SRWT1', message = 'the batch is free, or gone';
        exception when sqlstate 'SRWT1' then
            null;
        end;
    end loop;
    update sereno.batches b
    set job_id = case when again is null then by_job end, taken_at = sereno.now(),
        due_at = case when again is null then b.due_at else sereno.now() + again end
    where b.id = any(taken);
end $$;

CREATE FUNCTION sereno.take_lanes(requests jsonb, freed jsonb) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
    moment       timestamptz := sereno.now();
    locked_at    timestamptz;
    open_to      text[];
    own          json;
    free         bigint[];
    free_counts  integer[];
    free_list    json;
    missed       json;
    elsewhere    json;
    lane_ids     bigint[];
    lane_list    json;
    limiter_ids  bigint[];
    limiter_list json;
    locked_ids   bigint[];
begin
    select array_agg(wanted.queue) into open_to
    from jsonb_to_recordset(requests) as wanted(queue text)
    where wanted.queue <> all(array(select name from sereno.pauses where kind = 'queue'));
    select json_object_agg(queue, json_build_array(to_json(limiters), has_plain)) into own
    from (select limits.queue, array_agg(sereno.limiter_of(name, '')) as limiters,
                 (select true
                  from jsonb_to_recordset(requests) as wanted(queue text, floors jsonb)
                  cross join lateral jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint)
                  cross join lateral (select from sereno.jobs
                                      where state = 'ready' and lane is null and jobs.queue = wanted.queue
                                        and jobs.priority = step.priority and jobs.ready_seq >= step.floor limit 1) as job
                  where wanted.queue = limits.queue limit 1) is not null as has_plain
          from sereno.limits where limits.queue = any(open_to) group by limits.queue) as each;

    with due as materialized (select id from sereno.due_limiters(open_to, moment) as id),
    reported as materialized (
        select * from jsonb_to_recordset(freed) as f(limiter bigint, most integer)
        where (select true from sereno.lanes where has_work and waits_for = limiter limit 1)
    ),
    locked as materialized (
        select id, limit_name from sereno.limiters
        where id = any(array(select id from due union select limiter from reported)) order by id for update skip locked
    )
    select array_agg(locked.id),
           array_agg(greatest(reported.most, case when due.id is null then 0 when kind = 'rate' then 100 else 10 end)),
           json_agg(json_build_array(locked.id, due.id is not null)),
           (select json_agg(limiter) from reported where limiter not in (select id from locked)),
           (select json_agg(limiter) from reported
            where (select true from sereno.lanes
                   where has_work and waits_for = limiter and lanes.queue <> all(open_to) limit 1))
    into free, free_counts, free_list, missed, elsewhere
    from locked left join reported on reported.limiter = locked.id left join due on due.id = locked.id
    left join sereno.limits on limits.name = limit_name;

    with unfair as materialized (
        select lane.*
        from jsonb_to_recordset(requests) as wanted(queue text, lanes integer, bands jsonb)
        cross join lateral (
            select candidate.*
            from jsonb_to_recordset(wanted.bands) as step(band smallint, after double precision)
            cross join lateral (
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn > step.after
                 order by lanes.turn limit wanted.lanes)
                union all
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn <= step.after
                 order by lanes.turn limit wanted.lanes)
            ) as candidate
            limit wanted.lanes
        ) as lane
        where wanted.queue = any(open_to)
    ),
    fair as materialized (
        select lane.*
        from jsonb_to_recordset(requests) as wanted(queue text, slots integer)
        cross join lateral (
            select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                   null::bigint as behind
            from sereno.lanes
            where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = 10
            order by lanes.turn limit wanted.slots for update skip locked
        ) as lane
        where wanted.queue = any(open_to)
    ),
    waiting as materialized (
        select lane.*
        from unnest(free, free_counts) as limiter(id, most) cross join lateral (
            select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq, limiter.id as behind
            from sereno.lanes
            where has_work and waits_for = limiter.id and queue = any(open_to)
            order by turn limit limiter.most
        ) as lane
    ),
    every as materialized (select * from unfair union all select * from fair union all select * from waiting)
    select array_agg(id),
           json_agg(json_build_array(id, queue, to_json(limiters), to_json(units), order_id, turn, floor_priority, floor_seq,
               behind, band,
               case when order_id is not null then (
                   select lane = every.id and state = 'ready'
                          and (select true from sereno.history_dead dead
                               where dead.keys ? 'blocks' and dead.queue = every.queue
                                 and dead.keys ->> 'order' = head.keys ->> 'order' limit 1) is null
                   from (select lane, state, keys from sereno.jobs
                         where jobs.order_id = every.order_id order by jobs.id limit 1) as head) end,
               fair,
               case when fair is not null then (select weight from sereno.weights where key = fair) end,
               case when fair is not null then (select clock from sereno.shares
                                                where shares.queue = every.queue and shares.key = fair) end)),
           array(select distinct unnest(limiters) from every)
    into lane_ids, lane_list, limiter_ids from every;

    limiter_ids := array(select unnest(limiter_ids)
                      union select sereno.limiter_of(name, '') from sereno.limits where queue = any(open_to)
                      except select unnest(free));
    with locked as materialized (
        select id from sereno.limiters where id = any(limiter_ids) order by id for update skip locked
    )
    select array_agg(id) into locked_ids from locked;
    -- Tokens are computed for an instant after the locks, at which no other claim can take any: later than all claims
    -- before.
    locked_at := sereno.clock_now();

    select json_agg(json_build_array(
               limiters.id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end,
               case when limit_name is null then 1 else slots end, units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from locked_at - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - locked_at),
                        case when kind = 'rate' then extract(epoch from check_at - locked_at) end, 0),
               to_json(held), checks, limiters.xmin::text::bigint))
    into limiter_list
    from sereno.limiters left join sereno.limits on limits.name = limit_name
    where limiters.id = any(free || locked_ids);

    return json_build_array(locked_at, sereno.micros(locked_at), coalesce(lane_list, '[]'), coalesce(limiter_list, '[]'),
        coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'), coalesce(elsewhere, '[]'),
        coalesce(cardinality(locked_ids), 0) < cardinality(limiter_ids)
            and exists (select unnest(limiter_ids) except select id from sereno.limiters where id = any(limiter_ids)),
        sereno.next_check(open_to, moment));
end $$;

CREATE FUNCTION sereno.text_of(name text, of_type oid) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select case when sereno.has_own_cast(of_type) then format('case when %1$I is not null then format(''%%s'', %1$I) end', name)
                else format('%I::text', name) end
$_$;

CREATE FUNCTION sereno.topic_of(type text, named text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    topic text := (select substr(name, 7) from unnest(named) as name where starts_with(name, 'topic:') limit 1);
begin
    if topic is null then
        return null;
    elsif cardinality(named) > 1 then
        raise exception 'event %: a topic in "to" stands alone, without other topics and recipients', type
            using errcode = 'invalid_parameter_value', hint = 'Write one event for each.';
    end if;
    perform sereno.check_text('topic', topic);
    return topic;
end $$;

CREATE FUNCTION sereno.trace_id(trace text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32)
                else trace end
$_$;

CREATE FUNCTION sereno.try_enqueue_keyed(jobs jsonb, timeout double precision) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
    before text := current_setting('lock_timeout');
    results jsonb;
begin
    perform set_config('lock_timeout', greatest(1, round(timeout * 1000))::bigint::text, true);
    results := sereno.enqueue_keyed(jobs);
    perform set_config('lock_timeout', before, true);
    return results;
exception when lock_not_available then
    return null;
end $$;

CREATE FUNCTION sereno.unschedule(key text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform sereno.check_schedule(key);
    delete from sereno.schedules where schedules.key = unschedule.key;
    return found;
end $$;

COMMENT ON FUNCTION sereno.unschedule(key text) IS 'Remove a schedule, and return whether there was one. Its jobs stay.';

CREATE FUNCTION sereno.unsubscribe(topic text, recipient text, tenant text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    delete from sereno.subscriptions s
    where s.tenant = coalesce(unsubscribe.tenant, '') and s.topic = unsubscribe.topic
      and s.recipient_id = (select id from sereno.recipients r
                            where r.tenant = coalesce(unsubscribe.tenant, '') and r.key = unsubscribe.recipient);
    return found;
end $$;

COMMENT ON FUNCTION sereno.unsubscribe(topic text, recipient text, tenant text) IS 'End the subscription of a recipient to a topic, and return whether there was one.';

CREATE FUNCTION sereno.variant_of(variants jsonb, recipient bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select bound ->> 0 from jsonb_array_elements(variants -> 'bounds') with ordinality as each(bound, place)
    where ('x' || encode(substr(sha256(convert_to((variants ->> 'salt') || ':' || recipient, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
          < (bound ->> 1)::bigint
    order by place limit 1
    $$;

CREATE FUNCTION sereno.wake_lane() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
    values (new.lane, new.queue, new.priority, new.ready_seq);
    return null;
end $$;

CREATE FUNCTION sereno.wake_order() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
    select lane, queue, priority, ready_seq
    from (select * from sereno.jobs where order_id = sereno.order_of(old.queue, old.keys) order by id limit 1) as head
    where state = 'ready';
    return null;
end $$;

CREATE FUNCTION sereno.wake_scheduler(due timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if due < sereno.now() + interval '10 seconds' and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.leases where name = 'scheduler') then
        perform pg_notify('sereno.schedule', '');
    end if;
end $$;

CREATE FUNCTION sereno.words_for_death(part text, owner bigint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case part when 'left' then 'left behind at shutdown' else 'its worker session ' || owner || ' died' || case part
        when 'alone' then ' while it ran alone' when 'waited' then ' before it began'
        when 'advanced' then '; its iteration had advanced, and continues' else '' end end
    $$;

CREATE FUNCTION sereno.write_lanes(moment timestamp with time zone, served bigint[], served_queues integer[], served_priorities smallint[], served_seqs bigint[], queues text[], changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[], seen_priorities smallint[], seen_seqs bigint[], limiter_ids bigint[], held text[], tokens double precision[], check_in double precision[], exact boolean[], checks integer[], share_queues text[], share_keys text[], clocks double precision[]) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    ended   bigint[];
    locked  bigint[];
begin
    update sereno.limiters
    set held = limiter.held::bigint[], tokens = limiter.tokens, used_at = greatest(limiters.used_at, moment), checks = limiter.checks,
        check_at = case
            when limiter.next_check is not null then
                case when not limiter.exact and limiters.check_at > sereno.now() + interval '2 seconds' then limiters.check_at
                     else sereno.now() + make_interval(secs => limiter.next_check) end
            when limiters.check_at is null then null
            when (select true from sereno.lanes where has_work and waits_for = limiters.id limit 1)
                then greatest(limiters.check_at, sereno.now())
            end
    from unnest(limiter_ids, write_lanes.held, write_lanes.tokens, check_in, exact, write_lanes.checks)
        as limiter(id, held, tokens, next_check, exact, checks)
    where limiters.id = any(limiter_ids) and limiters.id = limiter.id;

    ended := array(
        select lane
        from unnest(served, served_queues, served_priorities, served_seqs) as given(lane, place, priority, seq)
        where (select true from sereno.jobs
               where state = 'ready' and jobs.lane is not null and jobs.queue = queues[given.place]
                 and jobs.lane = given.lane and (jobs.priority, jobs.ready_seq) >= (given.priority, given.seq)
               limit 1) is null);

    if cardinality(ended) > 0 or cardinality(changed) > 0 then
        locked := array(
            select id from sereno.lanes where id = any(ended || changed) order by id for update skip locked);
        update sereno.lanes
        set has_work = (select true from sereno.jobs
                        where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                          and jobs.lane = lanes.id and (jobs.priority, jobs.ready_seq) >= (next.priority, next.seq)
                        limit 1) is not null
                    or (select true from sereno.jobs
                        where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                          and jobs.lane = lanes.id
                        limit 1) is not null,
            waits_for = case when next.is_moved then next.waits else lanes.waits_for end,
            band = coalesce(next.band, lanes.band), turn = coalesce(next.turn, lanes.turn),
            floor_priority = next.priority, floor_seq = next.seq, served_at = sereno.now(),
            passed_over = lanes.passed_over and (next.priority, next.seq) > (0, 0)
        from (
            select own.id, move.id is not null as is_moved, move.waits, move.band, move.turn,
                   case when keeps then own.floor_priority else move.priority end as priority,
                   case when keeps then own.floor_seq else move.seq end as seq
            from sereno.lanes as own
            left join unnest(changed, waits, bands, turns, priorities, seqs, seen_priorities, seen_seqs)
                as move(id, waits, band, turn, priority, seq, seen_priority, seen_seq) on move.id = own.id
            cross join lateral (select move.id is null or (own.floor_priority, own.floor_seq) < (move.seen_priority, move.seen_seq)) as f(keeps)
            where own.id = any(locked)
        ) as next
        where lanes.id = any(locked) and lanes.id = next.id;
    end if;

    if cardinality(share_keys) > 0 then
        update sereno.shares set clock = greatest(shares.clock, charge.clock)
        from (select each.clock, each.queue, each.key, share.place
              from unnest(share_queues, share_keys, clocks) as each(queue, key, clock)
              cross join lateral (
                  select ctid as place from sereno.shares
                  where shares.queue = each.queue and shares.key = each.key for update skip locked) as share) as charge
        where shares.ctid = charge.place and shares.queue = charge.queue and shares.key = charge.key;
    end if;
    -- The transaction id, by which the worker recognises limiters that no other transaction has written since.
    return pg_current_xact_id()::xid::text;
end $$;

CREATE FUNCTION sereno.write_limited(moment timestamp with time zone, lanes sereno.taken_lane[], limiters sereno.taken_limiter[], ids bigint[], numbers bigint[], stops jsonb) RETURNS void
    LANGUAGE sql
    AS $$
    with given as materialized (
        select lane.*, got.ids, coalesce(cardinality(got.ids), 0) as count, last.priority, last.ready_seq,
               coalesce(cardinality(got.ids), 0) < lane.gives as is_short
        from unnest(lanes) with ordinality as lane
        cross join lateral (
            select array_agg(picked.id order by place) as ids
            from unnest(ids, numbers) with ordinality as picked(id, number, place) where number = lane.ordinality) as got
        left join sereno.jobs last on last.id = got.ids[cardinality(got.ids)]
        where lane.gives > 0 or lane.waits is not null
    ),
    share as materialized (
        select queue, fair, max(greatest(coalesce(clock, 0), turn))
                            + sum((count - is_short::integer) / coalesce(weight, 1)) as clock
        from given where fair is not null and count > 0 group by queue, fair
    ),
    moved as (
        select given.id,
               case when gives = 0 then waits when is_short then null else coalesce(given.order_id, waits) end as waits,
               case when given.fair is null then coalesce(given.priority, band) else band end as band,
               case when given.fair is null then sereno.micros(moment) + given.ordinality
                    when gives > 0 and is_short then greatest(coalesce(share.clock, turn), turn + gives / coalesce(weight, 1))
                    else coalesce(share.clock, turn) end as turn,
               case when gives = 0 then floor_priority
                    when is_short then coalesce((stops -> given.ordinality::text ->> 0)::integer, 0) else given.priority end as priority,
               case when gives = 0 then floor_seq
                    when is_short then coalesce((stops -> given.ordinality::text ->> 1)::bigint, 0) else given.ready_seq end as seq,
               floor_priority, floor_seq
        from given left join share on share.queue = given.queue and share.fair = given.fair
        where given.id is not null
    ),
    passed as (
        select limiter, sum(gives - count) as unused, sum(g.units * count) as spent,
               bool_or(given.id is not null and waits = limiter and behind is distinct from limiter) as is_new
        from given cross join lateral unnest(given.limiters, given.units) as g(limiter, units)
        group by limiter
    ),
    written as (
        select limiter.*, coalesce(passed.spent, 0) as spent, entered,
               case when need is null then null
                    when kind = 'rate' then
                        least(60, greatest(0, closed, (need - (tokens - coalesce(spent, 0))) / coalesce(per_second, 1)))
                    when is_new then 0
                    when closed > 0 then least(60, closed)
                    when kind = 'slots' and capacity + coalesce(unused, 0) > 0 then 0
                    else least(60, 5 * 2 ^ checks) end as next_check,
               case when entered <> '{}' then 0 when is_new and kind <> 'rate' then checks else least(10, checks + 1) end as new_checks
        from unnest(limiters) as limiter left join passed on passed.limiter = limiter.id
        cross join lateral (select array(select job from given g, unnest(g.ids) as job where limiter.id = any(g.limiters))) as e(entered)
        where is_touched
    )
    select sereno.write_lanes(
        moment, '{}', '{}', '{}', '{}', '{}', m.ids, m.waits, m.bands, m.turns, m.priorities, m.seqs, m.seen, m.seen_seqs,
        w.ids, w.held, w.tokens, w.checks, w.exact, w.counts, s.queues, s.keys, s.clocks)
    from (select array_agg(id) as ids, array_agg(waits) as waits, array_agg(band::smallint) as bands, array_agg(turn) as turns,
                 array_agg(priority::smallint) as priorities, array_agg(seq) as seqs,
                 array_agg(floor_priority) as seen, array_agg(floor_seq) as seen_seqs from moved) as m,
         (select array_agg(id) as ids, array_agg(case when kind = 'rate' then '{}' else (entered || held)::text end) as held,
                 array_agg(tokens - spent) as tokens, array_agg(next_check::double precision) as checks,
                 array_agg(kind = 'rate' or coalesce(next_check, 1) = 0) as exact, array_agg(new_checks::integer) as counts
          from written) as w,
         (select array_agg(queue) as queues, array_agg(fair) as keys, array_agg(clock) as clocks from share) as s
    $$;

CREATE AGGREGATE sereno.first(value anyelement) (
    SFUNC = sereno.keep_first,
    STYPE = anyelement,
    PARALLEL = safe
);

CREATE AGGREGATE sereno.sum_of(integer[]) (
    SFUNC = sereno.added,
    STYPE = integer[]
);

CREATE TABLE sereno.accounts (
    channel text NOT NULL,
    tenant text NOT NULL,
    settings jsonb NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.addresses (
    id bigint NOT NULL,
    recipient_id bigint NOT NULL,
    channel text NOT NULL,
    address text NOT NULL,
    keys jsonb,
    state text DEFAULT 'active'::text NOT NULL,
    reason text,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT addresses_state_check CHECK ((state = ANY (ARRAY['active'::text, 'unverified'::text, 'invalid'::text, 'unsubscribed'::text])))
);

ALTER TABLE sereno.addresses ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.addresses_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.recipients (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    key text NOT NULL,
    locale text,
    zone text,
    data jsonb,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT recipients_data CHECK ((octet_length((data)::text) <= 98304))
);

CREATE VIEW sereno.addresses_v1 AS
 SELECT a.id,
    a.recipient_id,
    r.key AS recipient,
    NULLIF(r.tenant, ''::text) AS tenant,
    a.channel,
    a.address,
    (a.keys IS NOT NULL) AS has_keys,
    a.state,
    a.reason,
    a.created_at,
    a.changed_at
   FROM (sereno.addresses a
     LEFT JOIN sereno.recipients r ON ((r.id = a.recipient_id)));

COMMENT ON VIEW sereno.addresses_v1 IS 'One row per address of a recipient. Its secret keys are not shown.';

COMMENT ON COLUMN sereno.addresses_v1.id IS 'deliveries_v1.address_id';

COMMENT ON COLUMN sereno.addresses_v1.recipient_id IS 'recipients_v1.id; indexed';

COMMENT ON COLUMN sereno.addresses_v1.recipient IS 'key of the recipient';

COMMENT ON COLUMN sereno.addresses_v1.tenant IS 'tenant of the recipient; null: none';

COMMENT ON COLUMN sereno.addresses_v1.channel IS 'channel that it is for';

COMMENT ON COLUMN sereno.addresses_v1.address IS 'address itself: a device token, an e-mail address, a phone number, a URL';

COMMENT ON COLUMN sereno.addresses_v1.has_keys IS 'it has secret keys';

COMMENT ON COLUMN sereno.addresses_v1.state IS 'active, unverified, invalid, unsubscribed';

COMMENT ON COLUMN sereno.addresses_v1.reason IS 'why it is not active';

COMMENT ON COLUMN sereno.addresses_v1.created_at IS 'created';

COMMENT ON COLUMN sereno.addresses_v1.changed_at IS 'last changed';

CREATE TABLE sereno.alert_rules (
    name text NOT NULL,
    kinds text[],
    log jsonb,
    targets jsonb NOT NULL,
    level text DEFAULT 'warn'::text NOT NULL,
    tenant text,
    queue text,
    task text,
    for_seconds double precision DEFAULT 0 NOT NULL,
    again_seconds double precision DEFAULT 14400 NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    note text,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_by text NOT NULL,
    log_read bigint,
    log_reached bigint,
    hits jsonb DEFAULT '[]'::jsonb NOT NULL,
    error text,
    error_at timestamp with time zone,
    CONSTRAINT alert_rules_again_seconds_check CHECK ((again_seconds > (0)::double precision)),
    CONSTRAINT alert_rules_for_seconds_check CHECK ((for_seconds >= (0)::double precision)),
    CONSTRAINT alert_rules_level_check CHECK ((level = ANY (ARRAY['warn'::text, 'bad'::text]))),
    CONSTRAINT alert_rules_targets_check CHECK ((jsonb_typeof(targets) = 'array'::text))
)
WITH (fillfactor='70');

CREATE TABLE sereno.alerts (
    id bigint NOT NULL,
    rule text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    level text NOT NULL,
    sentence text NOT NULL,
    details jsonb NOT NULL,
    words text NOT NULL,
    remedy text NOT NULL,
    opened_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    notified_at timestamp with time zone,
    times integer DEFAULT 0 NOT NULL,
    openings integer DEFAULT 1 NOT NULL,
    resolved_at timestamp with time zone,
    resolved_notified_at timestamp with time zone,
    silenced_until timestamp with time zone,
    silenced_by text,
    sent bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    CONSTRAINT alerts_level_check CHECK ((level = ANY (ARRAY['warn'::text, 'bad'::text])))
)
WITH (fillfactor='70');

ALTER TABLE sereno.alerts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.alerts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.archive_batches (
    id bigint NOT NULL,
    kind text NOT NULL,
    source text NOT NULL,
    held_in text,
    key_columns text[] NOT NULL,
    time_column text NOT NULL,
    columns jsonb,
    as_texts text[] DEFAULT '{}'::text[] NOT NULL,
    schema_version integer NOT NULL,
    nonce text DEFAULT substr(md5((gen_random_uuid())::text), 1, 8) NOT NULL,
    rows bigint,
    children_moved boolean DEFAULT true NOT NULL,
    children_after bigint DEFAULT 0 NOT NULL,
    moved_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    verified_at timestamp with time zone,
    drop_eligible_at timestamp with time zone,
    dropped_at timestamp with time zone,
    error text,
    CONSTRAINT archive_batches_dropped CHECK (((dropped_at IS NULL) OR ((held_in IS NULL) AND (dropped_at >= drop_eligible_at)))),
    CONSTRAINT archive_batches_held CHECK (((dropped_at IS NOT NULL) OR (held_in IS NOT NULL))),
    CONSTRAINT archive_batches_verified CHECK (((verified_at IS NULL) = (drop_eligible_at IS NULL)))
);

ALTER TABLE sereno.archive_batches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.archive_batches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.archive_files (
    batch_id bigint NOT NULL,
    number integer NOT NULL,
    kind text NOT NULL,
    first_block bigint NOT NULL,
    last_block bigint NOT NULL,
    object text NOT NULL,
    rows bigint,
    keys_hash text,
    content_hash text,
    first_id bigint,
    last_id bigint,
    from_at timestamp with time zone,
    to_at timestamp with time zone,
    bytes bigint,
    sha256 text,
    uploaded_at timestamp with time zone,
    verified_at timestamp with time zone,
    checked_at timestamp with time zone,
    tries integer DEFAULT 0 NOT NULL,
    failed_at timestamp with time zone,
    error text,
    CONSTRAINT archive_files_verified CHECK (((verified_at IS NULL) OR ((rows IS NOT NULL) AND (keys_hash IS NOT NULL) AND (content_hash IS NOT NULL) AND (sha256 IS NOT NULL) AND (bytes IS NOT NULL) AND (uploaded_at IS NOT NULL))))
);

CREATE TABLE sereno.archived_again (
    kind text NOT NULL,
    key text NOT NULL
);

CREATE TABLE sereno.attempts (
    job_id bigint NOT NULL,
    number integer NOT NULL,
    session_id bigint,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    partition_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    fingerprint text,
    CONSTRAINT attempts_outcome_check CHECK ((outcome = ANY (ARRAY['retry'::text, 'snooze'::text, 'release'::text, 'crash'::text, 'dead'::text, 'cancelled'::text, 'succeeded'::text])))
)
PARTITION BY RANGE (partition_at);

CREATE TABLE sereno.attempts_default (
    job_id bigint CONSTRAINT attempts_job_id_not_null NOT NULL,
    number integer CONSTRAINT attempts_number_not_null NOT NULL,
    session_id bigint,
    started_at timestamp with time zone CONSTRAINT attempts_started_at_not_null NOT NULL,
    finished_at timestamp with time zone CONSTRAINT attempts_finished_at_not_null NOT NULL,
    outcome text CONSTRAINT attempts_outcome_not_null NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    partition_at timestamp with time zone DEFAULT sereno.now() CONSTRAINT attempts_partition_at_not_null NOT NULL,
    fingerprint text,
    CONSTRAINT attempts_outcome_check CHECK ((outcome = ANY (ARRAY['retry'::text, 'snooze'::text, 'release'::text, 'crash'::text, 'dead'::text, 'cancelled'::text, 'succeeded'::text])))
);

CREATE TABLE sereno.history (
    id bigint NOT NULL,
    session_id bigint,
    finished_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    attempt integer NOT NULL,
    failures integer NOT NULL,
    crashes integer NOT NULL,
    snoozes integer NOT NULL,
    releases integer NOT NULL,
    priority smallint NOT NULL,
    state text NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    tenant text,
    unique_key text,
    trace text,
    tags text[],
    args jsonb NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    keys jsonb,
    fingerprint text,
    result jsonb,
    group_id bigint,
    links jsonb,
    requires jsonb
)
PARTITION BY LIST (state);

CREATE VIEW sereno.attempts_v1 AS
 SELECT attempts.job_id,
    attempts.number,
    attempts.session_id,
    attempts.started_at,
    attempts.finished_at,
    attempts.outcome,
    attempts.reason,
    attempts.error_type,
    attempts.error_message
   FROM sereno.attempts
UNION ALL
 SELECT jobs.id AS job_id,
    jobs.attempt AS number,
    jobs.session_id,
    jobs.claimed_at AS started_at,
    NULL::timestamp with time zone AS finished_at,
    'running'::text AS outcome,
    NULL::text AS reason,
    NULL::text AS error_type,
    NULL::text AS error_message
   FROM sereno.jobs
  WHERE (jobs.state = 'running'::text)
UNION ALL
 SELECT history.id AS job_id,
    history.attempt AS number,
    history.session_id,
    history.started_at,
    history.finished_at,
    history.state AS outcome,
    history.reason,
    history.error_type,
    history.error_message
   FROM sereno.history
  WHERE ((history.session_id IS NOT NULL) AND (history.started_at IS NOT NULL));

COMMENT ON VIEW sereno.attempts_v1 IS 'Every attempt of every job of jobs_v1, one row for each, the running ones included. A job that succeeded at the first attempt has one, if its task keeps its successes.';

COMMENT ON COLUMN sereno.attempts_v1.job_id IS 'jobs_v1.id';

COMMENT ON COLUMN sereno.attempts_v1.number IS '1, 2, 3 …; never reused';

COMMENT ON COLUMN sereno.attempts_v1.session_id IS 'session that ran it';

COMMENT ON COLUMN sereno.attempts_v1.started_at IS 'started; while it runs, when it was claimed';

COMMENT ON COLUMN sereno.attempts_v1.finished_at IS 'null: running';

COMMENT ON COLUMN sereno.attempts_v1.outcome IS 'running; retry, snooze, release, crash; succeeded, dead, cancelled';

COMMENT ON COLUMN sereno.attempts_v1.reason IS 'why it ended so';

COMMENT ON COLUMN sereno.attempts_v1.error_type IS 'class of the error';

COMMENT ON COLUMN sereno.attempts_v1.error_message IS 'message of the error';

CREATE TABLE sereno.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    login text DEFAULT SESSION_USER NOT NULL
);

ALTER TABLE sereno.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.batches (
    id bigint NOT NULL,
    purpose text NOT NULL,
    channel text NOT NULL,
    account text NOT NULL,
    queue text DEFAULT 'notifications'::text NOT NULL,
    due_at timestamp with time zone NOT NULL,
    job_id bigint,
    taken_at timestamp with time zone,
    ends_at timestamp with time zone,
    gathers boolean DEFAULT false NOT NULL,
    deliveries bigint[] NOT NULL,
    CONSTRAINT batches_purpose_check CHECK ((purpose = ANY (ARRAY['send'::text, 'ask'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sereno.batches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.batches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.bulk_operations (
    id bigint NOT NULL,
    action text NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    wanted jsonb NOT NULL,
    selection jsonb NOT NULL,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    tenant text,
    rate double precision,
    reason text,
    requested_by text NOT NULL,
    total bigint,
    total_exact boolean DEFAULT true NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    stop_requested bigint DEFAULT 0 NOT NULL,
    left_alone bigint DEFAULT 0 NOT NULL,
    cursor bigint DEFAULT 0 NOT NULL,
    cursor_key text DEFAULT ''::text NOT NULL,
    upper_id bigint NOT NULL,
    job_id bigint,
    paced_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    started_at timestamp with time zone,
    seen_at timestamp with time zone,
    stop_requested_at timestamp with time zone,
    stop_requested_by text,
    finished_at timestamp with time zone,
    error text,
    CONSTRAINT bulk_operations_action_check CHECK ((action = ANY (ARRAY['job.retry'::text, 'job.cancel'::text, 'job.delete'::text, 'delivery.requeue'::text, 'schedule.pause'::text, 'schedule.resume'::text, 'schedule.disable'::text, 'schedule.delete'::text, 'schedule.spread'::text]))),
    CONSTRAINT bulk_operations_rate_check CHECK ((rate > (0)::double precision)),
    CONSTRAINT bulk_operations_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'running'::text, 'done'::text, 'stopped'::text, 'failed'::text])))
)
WITH (fillfactor='70');

ALTER TABLE sereno.bulk_operations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.bulk_operations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.carried_jobs (
    job_id bigint NOT NULL,
    queue text NOT NULL,
    "position" bigint NOT NULL,
    session_id bigint NOT NULL,
    stored_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.carried_queues (
    queue text NOT NULL,
    share smallint NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT carried_queues_share_check CHECK (((share >= 0) AND (share <= 100)))
);

CREATE TABLE sereno.carrier_states (
    queue text NOT NULL,
    kind text NOT NULL,
    address text NOT NULL,
    direct boolean NOT NULL,
    reported_at timestamp with time zone NOT NULL,
    reached_at timestamp with time zone,
    error text,
    pending_messages bigint DEFAULT 0 NOT NULL,
    held_messages bigint DEFAULT 0 NOT NULL,
    redelivered_messages bigint DEFAULT 0 NOT NULL,
    pending_jobs bigint DEFAULT 0 NOT NULL,
    oldest_at timestamp with time zone,
    bytes bigint DEFAULT 0 NOT NULL,
    max_bytes bigint,
    replicas integer DEFAULT 1 NOT NULL,
    current_replicas integer DEFAULT 1 NOT NULL,
    leader text
);

CREATE TABLE sereno.channel_codes (
    minute timestamp with time zone NOT NULL,
    channel text NOT NULL,
    account text NOT NULL,
    code text NOT NULL,
    count integer NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.channel_minutes (
    minute timestamp with time zone NOT NULL,
    channel text NOT NULL,
    account text NOT NULL,
    sent integer DEFAULT 0 NOT NULL,
    accepted integer DEFAULT 0 NOT NULL,
    throttled integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    unknown integer DEFAULT 0 NOT NULL,
    receipts integer[] NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.channel_pauses (
    channel text NOT NULL,
    account text NOT NULL,
    reason text NOT NULL,
    since timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.deleted_jobs (
    id bigint NOT NULL,
    deleted_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.deliveries (
    id bigint NOT NULL,
    event_id bigint NOT NULL,
    recipient_id bigint NOT NULL,
    address_id bigint,
    channel text NOT NULL,
    account text DEFAULT ''::text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    reason text,
    due_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    attempts smallint DEFAULT 0 NOT NULL,
    unknowns smallint DEFAULT 0 NOT NULL,
    job_id bigint,
    provider_id text,
    error_code text,
    error_message text,
    receipt_at timestamp with time zone,
    sent_at timestamp with time zone,
    digest text,
    digest_of bigint,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT deliveries_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'sending'::text, 'sent'::text, 'delivered'::text, 'read'::text, 'bounced'::text, 'skipped'::text, 'failed'::text, 'invalid'::text, 'expired'::text, 'dead'::text, 'unknown'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0', fillfactor='34');

ALTER TABLE sereno.deliveries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.deliveries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.events (
    id bigint NOT NULL,
    type text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    subject text,
    key text,
    category text,
    payload sereno.bounded_json NOT NULL,
    channels text[] NOT NULL,
    audience text[],
    critical boolean DEFAULT false NOT NULL,
    opt_in boolean DEFAULT false NOT NULL,
    steps jsonb,
    throttle_most integer,
    throttle_seconds double precision,
    digest text,
    digest_seconds double precision,
    due_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    walked bigint DEFAULT 0 NOT NULL,
    matched_at timestamp with time zone,
    note text,
    unchecked boolean DEFAULT false NOT NULL,
    trace text,
    topic text,
    rate double precision,
    paced_from timestamp with time zone,
    paced bigint,
    cancelled_at timestamp with time zone,
    variants jsonb
);

CREATE TABLE sereno.inbox (
    id bigint NOT NULL,
    recipient_id bigint NOT NULL,
    delivery_id bigint NOT NULL,
    event text NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    data jsonb,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    seen_at timestamp with time zone,
    read_at timestamp with time zone,
    archived_at timestamp with time zone
);

CREATE TABLE sereno.receipts (
    id bigint NOT NULL,
    channel text NOT NULL,
    receipt_id text NOT NULL,
    delivery_id bigint,
    outcome text NOT NULL,
    code text,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE VIEW sereno.deliveries_v1 AS
 SELECT d.id,
    d.event_id,
    e.type AS event,
    e.subject,
    e.key AS event_key,
    d.recipient_id,
    r.key AS recipient,
    NULLIF(d.tenant, ''::text) AS tenant,
    d.channel,
    NULLIF(d.account, ''::text) AS account,
    d.address_id,
    d.state,
    d.reason,
    d.attempts,
    d.due_at,
    d.expires_at,
    d.created_at,
    d.changed_at,
    d.sent_at,
        CASE d.state
            WHEN 'delivered'::text THEN d.changed_at
            WHEN 'read'::text THEN COALESCE(( SELECT min(receipts.at) AS min
               FROM sereno.receipts
              WHERE ((receipts.delivery_id = d.id) AND (receipts.outcome = 'delivered'::text))), ( SELECT inbox.created_at
               FROM sereno.inbox
              WHERE (inbox.delivery_id = d.id)), d.changed_at)
            ELSE NULL::timestamp with time zone
        END AS delivered_at,
        CASE d.state
            WHEN 'read'::text THEN d.changed_at
            ELSE NULL::timestamp with time zone
        END AS read_at,
        CASE
            WHEN (d.state = ANY (ARRAY['sent'::text, 'delivered'::text, 'read'::text])) THEN COALESCE(d.sent_at, d.changed_at)
            WHEN (d.state = ANY (ARRAY['bounced'::text, 'skipped'::text, 'failed'::text, 'invalid'::text, 'expired'::text, 'dead'::text])) THEN d.changed_at
            ELSE NULL::timestamp with time zone
        END AS completed_at,
    d.error_code,
    d.error_message,
    d.provider_id,
    ( SELECT receipts.receipt_id
           FROM sereno.receipts
          WHERE (receipts.delivery_id = d.id)
          ORDER BY receipts.id DESC
         LIMIT 1) AS receipt_id,
    d.job_id,
    d.unknowns
   FROM ((sereno.deliveries d
     LEFT JOIN sereno.events e ON ((e.id = d.event_id)))
     LEFT JOIN sereno.recipients r ON ((r.id = d.recipient_id)));

COMMENT ON VIEW sereno.deliveries_v1 IS 'One row per event, recipient, channel and address, until it is deleted or archived. Addresses are in addresses_v1 only.';

COMMENT ON COLUMN sereno.deliveries_v1.id IS 'never reused';

COMMENT ON COLUMN sereno.deliveries_v1.event_id IS 'events_v1.id; indexed';

COMMENT ON COLUMN sereno.deliveries_v1.event IS 'type of the event; null if it was deleted, as the next two';

COMMENT ON COLUMN sereno.deliveries_v1.subject IS 'subject of the event; indexed';

COMMENT ON COLUMN sereno.deliveries_v1.event_key IS 'idempotency key of the event';

COMMENT ON COLUMN sereno.deliveries_v1.recipient_id IS 'recipients_v1.id; indexed';

COMMENT ON COLUMN sereno.deliveries_v1.recipient IS 'key of the recipient; null if it was deleted';

COMMENT ON COLUMN sereno.deliveries_v1.tenant IS 'null: none';

COMMENT ON COLUMN sereno.deliveries_v1.channel IS 'in_app, email, …: also the kind of the address';

COMMENT ON COLUMN sereno.deliveries_v1.account IS 'tenant whose account with the provider is used; null: the one of the code';

COMMENT ON COLUMN sereno.deliveries_v1.address_id IS 'addresses_v1.id; null: the recipient has none, or in-app';

COMMENT ON COLUMN sereno.deliveries_v1.state IS 'pending, sending, sent, delivered, read; skipped, failed, bounced, invalid, expired, dead; unknown (it may have been sent)';

COMMENT ON COLUMN sereno.deliveries_v1.reason IS 'why it is in that state';

COMMENT ON COLUMN sereno.deliveries_v1.attempts IS 'number of times that it was given to the provider';

COMMENT ON COLUMN sereno.deliveries_v1.due_at IS 'next attempt, or the last one';

COMMENT ON COLUMN sereno.deliveries_v1.expires_at IS 'not sent after then';

COMMENT ON COLUMN sereno.deliveries_v1.created_at IS 'created';

COMMENT ON COLUMN sereno.deliveries_v1.changed_at IS 'last change of the state';

COMMENT ON COLUMN sereno.deliveries_v1.sent_at IS 'last accepted by the provider';

COMMENT ON COLUMN sereno.deliveries_v1.delivered_at IS 'delivered, in the states delivered and read; of a read one whose delivery the provider did not report, when it was read';

COMMENT ON COLUMN sereno.deliveries_v1.read_at IS 'read, in the state read';

COMMENT ON COLUMN sereno.deliveries_v1.completed_at IS 'sereno had done its part: sent_at in the states sent, delivered and read, changed_at in the states skipped, failed, bounced, invalid, expired and dead; null: pending, sending or unknown';

COMMENT ON COLUMN sereno.deliveries_v1.error_code IS 'code of the last error, as the provider reports it';

COMMENT ON COLUMN sereno.deliveries_v1.error_message IS 'message of the last error';

COMMENT ON COLUMN sereno.deliveries_v1.provider_id IS 'id of the message at the provider';

COMMENT ON COLUMN sereno.deliveries_v1.receipt_id IS 'id of the newest receipt of the provider';

COMMENT ON COLUMN sereno.deliveries_v1.job_id IS 'job that is sending it';

COMMENT ON COLUMN sereno.deliveries_v1.unknowns IS 'attempts with an unknown outcome; above 0: it may have arrived twice';

CREATE TABLE sereno.delivery_hours (
    hour timestamp with time zone NOT NULL,
    event text NOT NULL,
    channel text NOT NULL,
    state text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    count integer NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.delivery_tenant_hours (
    tenant text NOT NULL,
    hour timestamp with time zone NOT NULL,
    channel text NOT NULL,
    matched integer DEFAULT 0 NOT NULL,
    eligible integer DEFAULT 0 NOT NULL,
    skipped integer DEFAULT 0 NOT NULL,
    sent integer DEFAULT 0 NOT NULL,
    accepted integer DEFAULT 0 NOT NULL,
    delivered integer DEFAULT 0 NOT NULL,
    read integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.dependencies (
    predecessor bigint NOT NULL,
    successor bigint NOT NULL,
    to_check boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE SEQUENCE sereno.direct_ids
    START WITH 1000000000000000
    INCREMENT BY 1000000
    NO MINVALUE
    MAXVALUE 9007000000000000
    CACHE 1;

CREATE TABLE sereno.duties (
    name text NOT NULL,
    done_at timestamp with time zone NOT NULL,
    place text[]
);

CREATE TABLE sereno.early_receipts (
    id bigint NOT NULL,
    channel text NOT NULL,
    account text NOT NULL,
    provider_id text NOT NULL,
    receipt jsonb NOT NULL,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

ALTER TABLE sereno.early_receipts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.early_receipts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE sereno.ended_attempts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.ended_attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.error_groups (
    fingerprint text NOT NULL,
    task text NOT NULL,
    error_type text NOT NULL,
    message text NOT NULL,
    frame text NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    count bigint NOT NULL,
    last_job_id bigint NOT NULL,
    muted_until timestamp with time zone,
    note text
)
WITH (fillfactor='70');

CREATE TABLE sereno.error_hours (
    fingerprint text NOT NULL,
    hour timestamp with time zone NOT NULL,
    tenant text NOT NULL,
    count integer NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.event_types (
    name text NOT NULL,
    definition jsonb NOT NULL,
    declared_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

ALTER TABLE sereno.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.events_v1 AS
 SELECT id,
    type,
    NULLIF(tenant, ''::text) AS tenant,
    subject,
    key,
    category,
    (payload)::jsonb AS payload,
    channels,
    audience,
    critical,
    opt_in,
    due_at,
    expires_at,
    created_at,
    matched_at,
    note,
        CASE
            WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
            ELSE trace
        END AS trace,
    topic,
    rate,
    cancelled_at
   FROM sereno.events;

COMMENT ON VIEW sereno.events_v1 IS 'One row per event, until it is deleted or archived.';

COMMENT ON COLUMN sereno.events_v1.id IS 'deliveries_v1.event_id';

COMMENT ON COLUMN sereno.events_v1.type IS 'type of the event';

COMMENT ON COLUMN sereno.events_v1.tenant IS 'null: none';

COMMENT ON COLUMN sereno.events_v1.subject IS 'what it is about; indexed';

COMMENT ON COLUMN sereno.events_v1.key IS 'idempotency key: an event of the same type, tenant, subject and key is written once';

COMMENT ON COLUMN sereno.events_v1.category IS 'category for preferences';

COMMENT ON COLUMN sereno.events_v1.payload IS 'an object';

COMMENT ON COLUMN sereno.events_v1.channels IS 'channels by which it is sent';

COMMENT ON COLUMN sereno.events_v1.audience IS 'keys of the named recipients; null: everyone who wants it';

COMMENT ON COLUMN sereno.events_v1.critical IS 'preferences, quiet hours and throttles do not apply';

COMMENT ON COLUMN sereno.events_v1.opt_in IS 'only recipients whose preference wants it get it';

COMMENT ON COLUMN sereno.events_v1.due_at IS 'not sent before then';

COMMENT ON COLUMN sereno.events_v1.expires_at IS 'not sent after then';

COMMENT ON COLUMN sereno.events_v1.created_at IS 'written';

COMMENT ON COLUMN sereno.events_v1.matched_at IS 'all its deliveries had been made; null: not yet';

COMMENT ON COLUMN sereno.events_v1.note IS 'problem with the event, such as an unknown channel or a payload of the wrong shape';

COMMENT ON COLUMN sereno.events_v1.trace IS 'id of the trace that it belongs to';

COMMENT ON COLUMN sereno.events_v1.topic IS 'the topic whose subscribers are the audience';

COMMENT ON COLUMN sereno.events_v1.rate IS 'deliveries that become due in a second; null: no limit';

COMMENT ON COLUMN sereno.events_v1.cancelled_at IS 'cancelled: nothing was sent from then on';

CREATE TABLE sereno.failed_deliveries (
    delivery_id bigint NOT NULL,
    state text NOT NULL,
    channel text NOT NULL,
    tenant text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.fires (
    planned_at timestamp with time zone NOT NULL,
    schedule_id bigint NOT NULL,
    fired_at timestamp with time zone NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 NOT NULL,
    reason text
)
PARTITION BY RANGE (planned_at);

CREATE TABLE sereno.fires_default (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.schedules (
    id bigint NOT NULL,
    next_run_at timestamp with time zone,
    planned boolean DEFAULT true NOT NULL,
    state text DEFAULT 'enabled'::text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    rule jsonb NOT NULL,
    shift bigint DEFAULT 0 NOT NULL,
    task text NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 5 NOT NULL,
    tenant text,
    trace text,
    tags text[],
    args sereno.arguments DEFAULT '{}'::jsonb NOT NULL,
    templated boolean DEFAULT false NOT NULL,
    unique_key text,
    unique_for double precision,
    unique_forever boolean,
    on_conflict text,
    expires_after double precision,
    missed text DEFAULT 'latest'::text NOT NULL,
    missed_limit integer DEFAULT 100 NOT NULL,
    missed_window double precision DEFAULT 86400 NOT NULL,
    max_lateness double precision,
    overlap text DEFAULT 'skip'::text NOT NULL,
    disable_after integer,
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    max_fires bigint,
    paused_until timestamp with time zone,
    note text,
    changed_by text,
    declared_by text,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    last_planned_at timestamp with time zone,
    last_fired_at timestamp with time zone,
    last_job_id bigint,
    last_finished_at timestamp with time zone,
    last_state text,
    last_error text,
    held_at timestamp with time zone,
    held_for integer DEFAULT 1 NOT NULL,
    held_free boolean DEFAULT false NOT NULL,
    fired bigint DEFAULT 0 NOT NULL,
    missed_count bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    failed_in_row integer DEFAULT 0 NOT NULL,
    skipped jsonb DEFAULT '{}'::jsonb NOT NULL,
    lateness integer[] DEFAULT '{0}'::integer[] NOT NULL,
    last_base_at timestamp with time zone,
    requires jsonb,
    CONSTRAINT schedules_disable_after_check CHECK ((disable_after > 0)),
    CONSTRAINT schedules_max_fires_check CHECK ((max_fires > 0)),
    CONSTRAINT schedules_missed_check CHECK ((missed = ANY (ARRAY['skip'::text, 'latest'::text, 'all'::text]))),
    CONSTRAINT schedules_missed_limit_check CHECK ((missed_limit > 0)),
    CONSTRAINT schedules_next CHECK (((next_run_at IS NULL) OR (state = 'enabled'::text))),
    CONSTRAINT schedules_on_conflict_check CHECK ((on_conflict = ANY (ARRAY['keep'::text, 'replace'::text]))),
    CONSTRAINT schedules_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'allow'::text, 'queue_one'::text, 'cancel_previous'::text]))),
    CONSTRAINT schedules_priority_check CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT schedules_rule_check CHECK ((jsonb_typeof(rule) = 'object'::text)),
    CONSTRAINT schedules_state_check CHECK ((state = ANY (ARRAY['enabled'::text, 'paused'::text, 'disabled'::text, 'parked'::text, 'finished'::text]))),
    CONSTRAINT schedules_tags CHECK (((tags IS NULL) OR sereno.are_tags(tags)))
)
WITH (fillfactor='80', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_scale_factor='0.1');

CREATE VIEW sereno.fires_v1 AS
 SELECT fires.planned_at,
    fires.schedule_id,
    schedules.key AS schedule,
    schedules.tenant,
    fires.fired_at,
    fires.job_id,
    fires.stands_for,
    fires.reason
   FROM (sereno.fires
     LEFT JOIN sereno.schedules ON ((schedules.id = fires.schedule_id)));

COMMENT ON VIEW sereno.fires_v1 IS 'Instants of schedules: each has made a job, or was skipped. A condition on planned_at limits how much is read.';

COMMENT ON COLUMN sereno.fires_v1.planned_at IS 'the instant; unique for each schedule';

COMMENT ON COLUMN sereno.fires_v1.schedule_id IS 'schedules_v1.id';

COMMENT ON COLUMN sereno.fires_v1.schedule IS 'key of the schedule; null if it was deleted';

COMMENT ON COLUMN sereno.fires_v1.tenant IS 'tenant of the schedule';

COMMENT ON COLUMN sereno.fires_v1.fired_at IS 'when it fired or was skipped';

COMMENT ON COLUMN sereno.fires_v1.job_id IS 'the job; of a skipped duplicate, the job that holds the unique key';

COMMENT ON COLUMN sereno.fires_v1.stands_for IS 'number of instants that it stands for: itself and the missed or skipped ones before it';

COMMENT ON COLUMN sereno.fires_v1.reason IS 'why it was skipped; null: it fired';

CREATE TABLE sereno.group_parts (
    group_id bigint NOT NULL,
    part smallint NOT NULL,
    remaining bigint NOT NULL,
    counted_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.groups (
    id bigint NOT NULL,
    name text,
    tenant text,
    total bigint DEFAULT 0 NOT NULL,
    then_job bigint,
    on_dead text DEFAULT 'wait'::text NOT NULL,
    cancelling boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT groups_on_dead_check CHECK ((on_dead = ANY (ARRAY['wait'::text, 'continue'::text, 'cancel'::text])))
);

ALTER TABLE sereno.groups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.history_dead (
    id bigint CONSTRAINT history_id_not_null NOT NULL,
    session_id bigint,
    finished_at timestamp with time zone CONSTRAINT history_finished_at_not_null NOT NULL,
    started_at timestamp with time zone,
    run_at timestamp with time zone CONSTRAINT history_run_at_not_null NOT NULL,
    created_at timestamp with time zone CONSTRAINT history_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    attempt integer CONSTRAINT history_attempt_not_null NOT NULL,
    failures integer CONSTRAINT history_failures_not_null NOT NULL,
    crashes integer CONSTRAINT history_crashes_not_null NOT NULL,
    snoozes integer CONSTRAINT history_snoozes_not_null NOT NULL,
    releases integer CONSTRAINT history_releases_not_null NOT NULL,
    priority smallint CONSTRAINT history_priority_not_null NOT NULL,
    state text CONSTRAINT history_state_not_null NOT NULL,
    queue text CONSTRAINT history_queue_not_null NOT NULL,
    task text CONSTRAINT history_task_not_null NOT NULL,
    tenant text,
    unique_key text,
    trace text,
    tags text[],
    args jsonb CONSTRAINT history_args_not_null NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    keys jsonb,
    fingerprint text,
    result jsonb,
    group_id bigint,
    links jsonb,
    requires jsonb
);

CREATE TABLE sereno.history_done (
    id bigint CONSTRAINT history_id_not_null NOT NULL,
    session_id bigint,
    finished_at timestamp with time zone CONSTRAINT history_finished_at_not_null NOT NULL,
    started_at timestamp with time zone,
    run_at timestamp with time zone CONSTRAINT history_run_at_not_null NOT NULL,
    created_at timestamp with time zone CONSTRAINT history_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    attempt integer CONSTRAINT history_attempt_not_null NOT NULL,
    failures integer CONSTRAINT history_failures_not_null NOT NULL,
    crashes integer CONSTRAINT history_crashes_not_null NOT NULL,
    snoozes integer CONSTRAINT history_snoozes_not_null NOT NULL,
    releases integer CONSTRAINT history_releases_not_null NOT NULL,
    priority smallint CONSTRAINT history_priority_not_null NOT NULL,
    state text CONSTRAINT history_state_not_null NOT NULL,
    queue text CONSTRAINT history_queue_not_null NOT NULL,
    task text CONSTRAINT history_task_not_null NOT NULL,
    tenant text,
    unique_key text,
    trace text,
    tags text[],
    args jsonb CONSTRAINT history_args_not_null NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    keys jsonb,
    fingerprint text,
    result jsonb,
    group_id bigint,
    links jsonb,
    requires jsonb
)
PARTITION BY RANGE (finished_at);

CREATE TABLE sereno.history_done_default (
    id bigint CONSTRAINT history_id_not_null NOT NULL,
    session_id bigint,
    finished_at timestamp with time zone CONSTRAINT history_finished_at_not_null NOT NULL,
    started_at timestamp with time zone,
    run_at timestamp with time zone CONSTRAINT history_run_at_not_null NOT NULL,
    created_at timestamp with time zone CONSTRAINT history_created_at_not_null NOT NULL,
    expires_at timestamp with time zone,
    attempt integer CONSTRAINT history_attempt_not_null NOT NULL,
    failures integer CONSTRAINT history_failures_not_null NOT NULL,
    crashes integer CONSTRAINT history_crashes_not_null NOT NULL,
    snoozes integer CONSTRAINT history_snoozes_not_null NOT NULL,
    releases integer CONSTRAINT history_releases_not_null NOT NULL,
    priority smallint CONSTRAINT history_priority_not_null NOT NULL,
    state text CONSTRAINT history_state_not_null NOT NULL,
    queue text CONSTRAINT history_queue_not_null NOT NULL,
    task text CONSTRAINT history_task_not_null NOT NULL,
    tenant text,
    unique_key text,
    trace text,
    tags text[],
    args jsonb CONSTRAINT history_args_not_null NOT NULL,
    reason text,
    error_type text,
    error_message text,
    traceback text,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    keys jsonb,
    fingerprint text,
    result jsonb,
    group_id bigint,
    links jsonb,
    requires jsonb
);

CREATE TABLE sereno.idempotency_keys (
    who text NOT NULL,
    key text NOT NULL,
    request bytea NOT NULL,
    status integer,
    body bytea,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

ALTER TABLE sereno.inbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.inbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.job_chunks (
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    number integer NOT NULL,
    chunks sereno.bounded_json NOT NULL,
    written_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT job_chunks_number CHECK (((jsonb_typeof((chunks)::jsonb) = 'array'::text) AND ((jsonb_array_length((chunks)::jsonb) >= 1) AND (jsonb_array_length((chunks)::jsonb) <= number))))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.job_streams (
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    ended_at timestamp with time zone,
    bytes bigint DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sereno.jobs ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME sereno.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.jobs_v1 AS
 SELECT every.id,
    every.task,
    every.queue,
    every.state,
    every.priority,
    every.tenant,
    every.tags,
        CASE
            WHEN (every.trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(every.trace, 4, 32)
            ELSE every.trace
        END AS trace,
    every.args,
    every.unique_key,
    every.attempt,
    every.failures,
    every.crashes,
    every.snoozes,
    every.releases,
    every.run_at,
    every.created_at,
    every.started_at,
    every.finished_at,
    every.expires_at,
    every.cancel_requested,
    every.session_id,
    sessions.host,
    sessions.pid,
    COALESCE(every.reason, last.reason) AS reason,
    COALESCE(every.error_type, last.error_type) AS error_type,
    COALESCE(every.error_message, last.error_message) AS error_message,
    every.result,
    every.group_id,
    every.schedule_id,
    schedules.key AS schedule,
    every.planned_at,
    every.stands_for,
    every.keys,
    every.requires
   FROM (((( SELECT jobs.id,
            jobs.task,
            jobs.queue,
            jobs.state,
            jobs.priority,
            jobs.tenant,
            jobs.tags,
            jobs.trace,
            (jobs.args)::jsonb AS args,
            jobs.unique_key,
            jobs.attempt,
            jobs.failures,
            jobs.crashes,
            jobs.snoozes,
            jobs.releases,
            jobs.run_at,
            jobs.created_at,
                CASE
                    WHEN (jobs.state = 'running'::text) THEN jobs.claimed_at
                    ELSE NULL::timestamp with time zone
                END AS started_at,
            NULL::timestamp with time zone AS finished_at,
            jobs.expires_at,
            jobs.cancel_requested,
            jobs.session_id,
            NULL::text AS reason,
            NULL::text AS error_type,
            NULL::text AS error_message,
            NULL::jsonb AS result,
            jobs.group_id,
            jobs.schedule_id,
            jobs.planned_at,
            jobs.stands_for,
            jobs.keys,
            jobs.requires
           FROM sereno.jobs
        UNION ALL
         SELECT history.id,
            history.task,
            history.queue,
            history.state,
            history.priority,
            history.tenant,
            history.tags,
            history.trace,
            history.args,
            history.unique_key,
            history.attempt,
            history.failures,
            history.crashes,
            history.snoozes,
            history.releases,
            history.run_at,
            history.created_at,
            history.started_at,
            history.finished_at,
            history.expires_at,
            false,
            history.session_id,
            history.reason,
            history.error_type,
            history.error_message,
            history.result,
            history.group_id,
            history.schedule_id,
            history.planned_at,
            history.stands_for,
            history.keys,
            history.requires
           FROM sereno.history) every
     LEFT JOIN LATERAL ( SELECT max(newest.reason) AS reason,
            max(newest.error_type) AS error_type,
            max(newest.error_message) AS error_message
           FROM ( SELECT attempts.reason,
                    attempts.error_type,
                    attempts.error_message
                   FROM sereno.attempts
                  WHERE ((every.finished_at IS NULL) AND (attempts.job_id = every.id) AND (attempts.partition_at >= (every.created_at - '1 day'::interval)))
                  ORDER BY attempts.number DESC
                 LIMIT 1) newest) last ON (true))
     LEFT JOIN sereno.sessions ON ((sessions.id = every.session_id)))
     LEFT JOIN sereno.schedules ON ((schedules.id = every.schedule_id)));

COMMENT ON VIEW sereno.jobs_v1 IS 'Live jobs and the history, one row per job, until it is deleted or archived. A condition on finished_at limits how much of the history is read.';

COMMENT ON COLUMN sereno.jobs_v1.id IS 'never reused';

COMMENT ON COLUMN sereno.jobs_v1.task IS 'name of the task';

COMMENT ON COLUMN sereno.jobs_v1.queue IS 'queue that it waits in';

COMMENT ON COLUMN sereno.jobs_v1.state IS 'waiting (for other jobs), scheduled, ready, running; succeeded, dead, cancelled';

COMMENT ON COLUMN sereno.jobs_v1.priority IS '0 (first) to 9';

COMMENT ON COLUMN sereno.jobs_v1.tenant IS 'null: none';

COMMENT ON COLUMN sereno.jobs_v1.tags IS 'null: none';

COMMENT ON COLUMN sereno.jobs_v1.trace IS 'id of the trace that it belongs to';

COMMENT ON COLUMN sereno.jobs_v1.args IS 'arguments, an object; encrypted ones are ciphertext';

COMMENT ON COLUMN sereno.jobs_v1.unique_key IS 'while the job lives, no other one of its task and tenant has the same';

COMMENT ON COLUMN sereno.jobs_v1.attempt IS 'number of its last attempt; 0: none yet';

COMMENT ON COLUMN sereno.jobs_v1.failures IS 'attempts that failed';

COMMENT ON COLUMN sereno.jobs_v1.crashes IS 'attempts whose worker process died';

COMMENT ON COLUMN sereno.jobs_v1.snoozes IS 'attempts that asked to be continued later';

COMMENT ON COLUMN sereno.jobs_v1.releases IS 'attempts that a worker returned, for example on shutdown';

COMMENT ON COLUMN sereno.jobs_v1.run_at IS 'due; after a failure, the next attempt';

COMMENT ON COLUMN sereno.jobs_v1.created_at IS 'enqueued';

COMMENT ON COLUMN sereno.jobs_v1.started_at IS 'start of the last attempt, of a running job when it was claimed; null: it does not run and has not finished, or it never started';

COMMENT ON COLUMN sereno.jobs_v1.finished_at IS 'null: live';

COMMENT ON COLUMN sereno.jobs_v1.expires_at IS 'cancelled if it has not started by then';

COMMENT ON COLUMN sereno.jobs_v1.cancel_requested IS 'it is running, and was told to stop';

COMMENT ON COLUMN sereno.jobs_v1.session_id IS 'session that runs it, or ran its last attempt';

COMMENT ON COLUMN sereno.jobs_v1.host IS 'host of that session; null a week after the session has ended';

COMMENT ON COLUMN sereno.jobs_v1.pid IS 'process id of that session';

COMMENT ON COLUMN sereno.jobs_v1.reason IS 'why its last attempt ended as it did; of a live job, the last one that has ended';

COMMENT ON COLUMN sereno.jobs_v1.error_type IS 'class of the error of that attempt';

COMMENT ON COLUMN sereno.jobs_v1.error_message IS 'message of the error of that attempt';

COMMENT ON COLUMN sereno.jobs_v1.result IS 'what the task returned, if it keeps results; null otherwise';

COMMENT ON COLUMN sereno.jobs_v1.group_id IS 'group that it belongs to';

COMMENT ON COLUMN sereno.jobs_v1.schedule_id IS 'schedule that made it; indexed';

COMMENT ON COLUMN sereno.jobs_v1.schedule IS 'key of that schedule; null if the schedule was deleted';

COMMENT ON COLUMN sereno.jobs_v1.planned_at IS 'instant of the schedule that it stands for';

COMMENT ON COLUMN sereno.jobs_v1.stands_for IS 'number of instants that it stands for: itself and the missed ones before it';

COMMENT ON COLUMN sereno.jobs_v1.keys IS 'its limits (name, key and units of each), fair and order keys, and blocks: a dead letter that blocks its order key';

COMMENT ON COLUMN sereno.jobs_v1.requires IS 'what its worker must have: a version of the task, the key of its encrypted arguments';

CREATE TABLE sereno.key_rules (
    kind text NOT NULL,
    name text NOT NULL,
    rule jsonb NOT NULL,
    declared_by text NOT NULL,
    CONSTRAINT key_rules_kind_check CHECK ((kind = ANY (ARRAY['task'::text, 'queue'::text])))
);

CREATE TABLE sereno.lane_queues (
    queue text NOT NULL
);

CREATE TABLE sereno.lane_wakes (
    id bigint NOT NULL,
    lane bigint NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    ready_seq bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sereno.lane_wakes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.lane_wakes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.lanes (
    id bigint NOT NULL,
    queue text NOT NULL,
    keys jsonb NOT NULL,
    limiters bigint[] NOT NULL,
    units integer[] NOT NULL,
    order_id bigint,
    fair text,
    band smallint NOT NULL,
    turn double precision NOT NULL,
    has_work boolean DEFAULT true NOT NULL,
    waits_for bigint,
    floor_priority smallint DEFAULT 0 NOT NULL,
    floor_seq bigint DEFAULT 0 NOT NULL,
    passed_over boolean DEFAULT false NOT NULL,
    served_at timestamp with time zone DEFAULT sereno.now() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.leases (
    name text NOT NULL,
    holder text NOT NULL,
    fence bigint DEFAULT 1 NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    wakes_at timestamp with time zone,
    ticked_at timestamp with time zone,
    tick_seconds double precision,
    tick_fires integer,
    error text,
    error_at timestamp with time zone,
    zones text
)
WITH (fillfactor='50');

CREATE TABLE sereno.limiters (
    id bigint NOT NULL,
    limit_name text,
    key text NOT NULL,
    tokens double precision,
    used_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    closed_until timestamp with time zone,
    held bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    check_at timestamp with time zone,
    checks integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

COMMENT ON COLUMN sereno.limiters.held IS 'Ids of admitted jobs, each with a slot of its own; those behind a negative number -n share n slots.';

CREATE TABLE sereno.limits (
    name text NOT NULL,
    kind text NOT NULL,
    slots integer,
    units double precision,
    period double precision,
    burst double precision,
    queue text,
    key text DEFAULT ''::text NOT NULL,
    declared jsonb,
    declared_by text,
    overridden boolean DEFAULT false NOT NULL,
    note text,
    changed_by text,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT limits_burst_check CHECK (((burst >= (1)::double precision) AND (burst < 'Infinity'::double precision))),
    CONSTRAINT limits_kind_check CHECK ((kind = ANY (ARRAY['slots'::text, 'rate'::text]))),
    CONSTRAINT limits_numbers CHECK (
CASE kind
    WHEN 'slots'::text THEN ((slots IS NOT NULL) AND (units IS NULL))
    ELSE ((units IS NOT NULL) AND (period IS NOT NULL) AND (burst IS NOT NULL) AND (slots IS NULL))
END),
    CONSTRAINT limits_period_check CHECK (((period > (0)::double precision) AND (period < 'Infinity'::double precision))),
    CONSTRAINT limits_slots_check CHECK ((slots >= 0)),
    CONSTRAINT limits_units_check CHECK (((units > (0)::double precision) AND (units < 'Infinity'::double precision)))
);

CREATE TABLE sereno.logs (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    level text NOT NULL,
    event text NOT NULL,
    message text NOT NULL,
    tenant text,
    job_id bigint,
    task text,
    queue text,
    trace_id text,
    session bigint,
    context jsonb DEFAULT '{}'::jsonb NOT NULL,
    traceback text
);

ALTER TABLE sereno.logs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.logs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.message_ids (
    channel text NOT NULL,
    account text NOT NULL,
    provider_id text NOT NULL,
    delivery_id bigint NOT NULL
);

CREATE TABLE sereno.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE sereno.pauses (
    kind text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    paused_by text NOT NULL,
    note text,
    by_tenant boolean DEFAULT false NOT NULL,
    CONSTRAINT pauses_check CHECK (((NOT by_tenant) OR (kind = 'tenant'::text))),
    CONSTRAINT pauses_kind_check CHECK ((kind = ANY (ARRAY['queue'::text, 'task'::text, 'tenant'::text])))
);

CREATE TABLE sereno.preferences (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    recipient_id bigint,
    category text,
    event text,
    channel text,
    wanted boolean,
    filter jsonb,
    condition jsonpath,
    quiet jsonb,
    weight smallint GENERATED ALWAYS AS (((((
CASE
    WHEN (recipient_id IS NULL) THEN 0
    ELSE 100
END +
CASE
    WHEN (event IS NULL) THEN 0
    ELSE 20
END) +
CASE
    WHEN (category IS NULL) THEN 0
    ELSE 10
END) +
CASE
    WHEN (channel IS NULL) THEN 0
    ELSE 1
END))::smallint) STORED NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    digest_seconds double precision,
    CONSTRAINT preferences_filter CHECK (((filter IS NULL) = (condition IS NULL)))
);

ALTER TABLE sereno.preferences ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.preferences_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.procedure_runs (
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    target text NOT NULL,
    name text NOT NULL,
    seconds double precision NOT NULL,
    result jsonb NOT NULL,
    finished_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.procedures (
    target text NOT NULL,
    name text NOT NULL,
    signature jsonb NOT NULL,
    given jsonb DEFAULT '{}'::jsonb NOT NULL,
    timeout double precision NOT NULL,
    lock_timeout double precision NOT NULL,
    note text,
    allowed_by text NOT NULL,
    allowed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT procedures_lock_timeout_check CHECK ((lock_timeout > (0)::double precision)),
    CONSTRAINT procedures_timeout_check CHECK ((timeout > (0)::double precision))
);

CREATE VIEW sereno.procedures_v1 AS
 SELECT target,
    (signature ->> 'schema'::text) AS schema,
    (signature ->> 'name'::text) AS name,
    (signature ->> 'kind'::text) AS kind,
    given,
    timeout,
    lock_timeout,
    note,
    allowed_by,
    allowed_at
   FROM sereno.procedures;

COMMENT ON VIEW sereno.procedures_v1 IS 'One row per procedure that jobs may call.';

COMMENT ON COLUMN sereno.procedures_v1.target IS 'database that has it; here: the one of this schema';

COMMENT ON COLUMN sereno.procedures_v1.schema IS 'its schema';

COMMENT ON COLUMN sereno.procedures_v1.name IS 'its name in the schema';

COMMENT ON COLUMN sereno.procedures_v1.kind IS 'procedure or function';

COMMENT ON COLUMN sereno.procedures_v1.given IS 'parameters that are filled from the job and that no caller can set, an object: {"run": "job"}';

COMMENT ON COLUMN sereno.procedures_v1.timeout IS 'longest call, in seconds';

COMMENT ON COLUMN sereno.procedures_v1.lock_timeout IS 'longest wait for a lock, in seconds';

COMMENT ON COLUMN sereno.procedures_v1.note IS 'note of the operator';

COMMENT ON COLUMN sereno.procedures_v1.allowed_by IS 'user or program that allowed it';

COMMENT ON COLUMN sereno.procedures_v1.allowed_at IS 'allowed';

CREATE TABLE sereno.progress (
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    fraction double precision NOT NULL,
    note text,
    updated_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT progress_fraction_check CHECK (((fraction >= (0)::double precision) AND (fraction <= (1)::double precision)))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE SEQUENCE sereno.ready_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER TABLE sereno.receipts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.receipts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.receipts_v1 AS
 SELECT id,
    delivery_id,
    channel,
    receipt_id,
    outcome,
    code,
    at
   FROM sereno.receipts;

COMMENT ON VIEW sereno.receipts_v1 IS 'Receipts that providers reported with an id, one row for each and each delivery.';

COMMENT ON COLUMN sereno.receipts_v1.id IS 'in the order in which they came';

COMMENT ON COLUMN sereno.receipts_v1.delivery_id IS 'deliveries_v1.id; indexed';

COMMENT ON COLUMN sereno.receipts_v1.channel IS 'channel';

COMMENT ON COLUMN sereno.receipts_v1.receipt_id IS 'id at the provider';

COMMENT ON COLUMN sereno.receipts_v1.outcome IS 'delivered, read, clicked, complained, unsubscribed, bounced, failed, invalid, retry, down';

COMMENT ON COLUMN sereno.receipts_v1.code IS 'code of the provider';

COMMENT ON COLUMN sereno.receipts_v1.at IS 'when it came';

ALTER TABLE sereno.recipients ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.recipients_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.recipients_v1 AS
 SELECT id,
    key,
    NULLIF(tenant, ''::text) AS tenant,
    locale,
    zone,
    data,
    created_at,
    changed_at
   FROM sereno.recipients;

COMMENT ON VIEW sereno.recipients_v1 IS 'One row per recipient.';

COMMENT ON COLUMN sereno.recipients_v1.id IS 'deliveries_v1.recipient_id';

COMMENT ON COLUMN sereno.recipients_v1.key IS 'key of the application; unique in its tenant';

COMMENT ON COLUMN sereno.recipients_v1.tenant IS 'null: none';

COMMENT ON COLUMN sereno.recipients_v1.locale IS 'language of messages';

COMMENT ON COLUMN sereno.recipients_v1.zone IS 'time zone, for quiet hours';

COMMENT ON COLUMN sereno.recipients_v1.data IS 'what the application stored, an object';

COMMENT ON COLUMN sereno.recipients_v1.created_at IS 'created';

COMMENT ON COLUMN sereno.recipients_v1.changed_at IS 'last changed';

CREATE TABLE sereno.refused_declarations (
    service text NOT NULL,
    key text NOT NULL,
    problem text NOT NULL,
    refused_at timestamp with time zone NOT NULL
);

CREATE TABLE sereno.relay_batches (
    id bigint NOT NULL,
    queue text NOT NULL,
    session_id bigint NOT NULL,
    jobs integer NOT NULL,
    body text NOT NULL,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT relay_batches_jobs_check CHECK ((jobs > 0))
);

ALTER TABLE sereno.relay_batches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.relay_batches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.repeated_messages (
    queue text NOT NULL,
    "position" bigint NOT NULL
);

CREATE TABLE sereno.restored (
    kind text NOT NULL,
    key text NOT NULL,
    batch_id bigint NOT NULL,
    digest text NOT NULL,
    restored_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE TABLE sereno.saved_searches (
    list text NOT NULL,
    tenant text,
    name text NOT NULL,
    text text NOT NULL,
    saved_by text NOT NULL,
    saved_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT saved_searches_list_check CHECK (((length(list) >= 1) AND (length(list) <= 40))),
    CONSTRAINT saved_searches_name_check CHECK (((length(name) >= 1) AND (length(name) <= 100))),
    CONSTRAINT saved_searches_text_check CHECK (((length(text) >= 1) AND (length(text) <= 2000)))
);

CREATE TABLE sereno.schedule_ends (
    id bigint NOT NULL,
    schedule_id bigint NOT NULL,
    job_id bigint NOT NULL,
    state text NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    error text
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sereno.schedule_ends ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.schedule_ends_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE sereno.schedules ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.schedules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.schedules_v1 AS
 SELECT id,
    key,
    state,
    next_run_at,
    rule,
    task,
    queue,
    priority,
    tenant,
    tags,
    trace,
    (args)::jsonb AS args,
    unique_key,
    missed,
    overlap,
    max_lateness,
    disable_after,
    starts_at,
    ends_at,
    max_fires,
    paused_until,
    note,
    changed_by,
    declared_by,
    created_at,
    changed_at,
    last_planned_at,
    last_fired_at,
    last_job_id,
    last_finished_at,
    last_state,
    last_error,
    fired,
    missed_count,
    succeeded,
    failed,
    failed_in_row,
    skipped,
    requires
   FROM sereno.schedules;

COMMENT ON VIEW sereno.schedules_v1 IS 'One row per schedule, with its job, its policies and the results of its runs.';

COMMENT ON COLUMN sereno.schedules_v1.id IS 'jobs_v1.schedule_id, fires_v1.schedule_id';

COMMENT ON COLUMN sereno.schedules_v1.key IS 'unique name';

COMMENT ON COLUMN sereno.schedules_v1.state IS 'enabled, paused, disabled (after failures), parked (its rule is invalid), finished';

COMMENT ON COLUMN sereno.schedules_v1.next_run_at IS 'next instant; null: none is planned';

COMMENT ON COLUMN sereno.schedules_v1.rule IS 'when: an object; its kind is once, every, cron or daily';

COMMENT ON COLUMN sereno.schedules_v1.task IS 'task of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.queue IS 'queue of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.priority IS 'priority of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.tenant IS 'null: none';

COMMENT ON COLUMN sereno.schedules_v1.tags IS 'tags of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.trace IS 'trace of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.args IS 'arguments of its jobs; fields such as {fire:%Y-%m} are filled in for each';

COMMENT ON COLUMN sereno.schedules_v1.unique_key IS 'unique key of its jobs';

COMMENT ON COLUMN sereno.schedules_v1.missed IS 'what it does about missed instants: skip, latest, all';

COMMENT ON COLUMN sereno.schedules_v1.overlap IS 'what it does while a run is under way: skip, allow, queue_one, cancel_previous';

COMMENT ON COLUMN sereno.schedules_v1.max_lateness IS 'seconds; later instants are skipped';

COMMENT ON COLUMN sereno.schedules_v1.disable_after IS 'disabled after that many failed runs in a row';

COMMENT ON COLUMN sereno.schedules_v1.starts_at IS 'no instant before then';

COMMENT ON COLUMN sereno.schedules_v1.ends_at IS 'no instant after then';

COMMENT ON COLUMN sereno.schedules_v1.max_fires IS 'finished after that many fires';

COMMENT ON COLUMN sereno.schedules_v1.paused_until IS 'an enabled schedule is paused until then';

COMMENT ON COLUMN sereno.schedules_v1.note IS 'why it is paused, disabled or parked';

COMMENT ON COLUMN sereno.schedules_v1.changed_by IS 'user or program that changed it last';

COMMENT ON COLUMN sereno.schedules_v1.declared_by IS 'service whose code declares it; null: created at run time';

COMMENT ON COLUMN sereno.schedules_v1.created_at IS 'created';

COMMENT ON COLUMN sereno.schedules_v1.changed_at IS 'changed by a user or a program';

COMMENT ON COLUMN sereno.schedules_v1.last_planned_at IS 'last instant that fired';

COMMENT ON COLUMN sereno.schedules_v1.last_fired_at IS 'when that fired';

COMMENT ON COLUMN sereno.schedules_v1.last_job_id IS 'the job that it made';

COMMENT ON COLUMN sereno.schedules_v1.last_finished_at IS 'end of the last run that has ended';

COMMENT ON COLUMN sereno.schedules_v1.last_state IS 'state in which that run ended';

COMMENT ON COLUMN sereno.schedules_v1.last_error IS 'error of that run';

COMMENT ON COLUMN sereno.schedules_v1.fired IS 'number of fires';

COMMENT ON COLUMN sereno.schedules_v1.missed_count IS 'number of instants that were missed';

COMMENT ON COLUMN sereno.schedules_v1.succeeded IS 'number of runs that succeeded';

COMMENT ON COLUMN sereno.schedules_v1.failed IS 'number of runs that failed';

COMMENT ON COLUMN sereno.schedules_v1.failed_in_row IS 'number of failed runs since the last success';

COMMENT ON COLUMN sereno.schedules_v1.skipped IS 'number of skipped instants by reason, an object';

COMMENT ON COLUMN sereno.schedules_v1.requires IS 'what the workers of its jobs must have, as in jobs_v1';

ALTER TABLE sereno.sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW sereno.sessions_v1 AS
 SELECT id,
    state,
    host,
    pid,
    version,
    release,
    started_at,
    seen_at,
    lease_until,
    ended_at
   FROM sereno.sessions;

COMMENT ON VIEW sereno.sessions_v1 IS 'One row per run of a worker process; deleted a week after its end.';

COMMENT ON COLUMN sereno.sessions_v1.id IS 'jobs_v1.session_id';

COMMENT ON COLUMN sereno.sessions_v1.state IS 'alive, closed, dead';

COMMENT ON COLUMN sereno.sessions_v1.host IS 'host name';

COMMENT ON COLUMN sereno.sessions_v1.pid IS 'process id';

COMMENT ON COLUMN sereno.sessions_v1.version IS 'version of sereno';

COMMENT ON COLUMN sereno.sessions_v1.release IS 'release of its code, if it names one';

COMMENT ON COLUMN sereno.sessions_v1.started_at IS 'started';

COMMENT ON COLUMN sereno.sessions_v1.seen_at IS 'last heartbeat';

COMMENT ON COLUMN sereno.sessions_v1.lease_until IS 'after that, other workers take over its jobs';

COMMENT ON COLUMN sereno.sessions_v1.ended_at IS 'null: alive';

CREATE TABLE sereno.shares (
    queue text NOT NULL,
    key text NOT NULL,
    clock double precision NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE sereno.sign_outs (
    sign_in text NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    CONSTRAINT sign_outs_sign_in_check CHECK ((length(sign_in) <= 100))
);

CREATE TABLE sereno.signal_waits (
    job_id bigint NOT NULL,
    name text NOT NULL,
    tenant text,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    attempt integer,
    is_checked boolean DEFAULT true NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.signals (
    id bigint NOT NULL,
    name text NOT NULL,
    tenant text,
    value sereno.bounded_json DEFAULT 'null'::jsonb NOT NULL,
    sent_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    is_checked boolean DEFAULT false NOT NULL,
    trace text,
    CONSTRAINT signals_name_length CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT signals_tenant_length CHECK (((length(tenant) >= 1) AND (length(tenant) <= 500)))
);

ALTER TABLE sereno.signals ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.signals_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.steps (
    job_id bigint NOT NULL,
    name text NOT NULL,
    attempt integer NOT NULL,
    result jsonb,
    done_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    "position" integer,
    pending text[],
    is_cursor boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE sereno.subscriptions (
    tenant text NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    recipient_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.tasks (
    name text NOT NULL,
    service text NOT NULL,
    tenants boolean NOT NULL,
    queue text,
    priority smallint,
    version integer DEFAULT 1 NOT NULL,
    parameters jsonb,
    declared_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

CREATE TABLE sereno.templates (
    event text NOT NULL,
    channel text NOT NULL,
    locale text DEFAULT ''::text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    part text NOT NULL,
    source text NOT NULL,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    changed_by text NOT NULL,
    CONSTRAINT templates_part_check CHECK ((part = ANY (ARRAY['title'::text, 'body'::text, 'html'::text, 'options'::text])))
);

CREATE TABLE sereno.ten_minutes (
    minute timestamp with time zone CONSTRAINT minutes_minute_not_null NOT NULL,
    queue text CONSTRAINT minutes_queue_not_null NOT NULL,
    task text CONSTRAINT minutes_task_not_null NOT NULL,
    succeeded integer DEFAULT 0 CONSTRAINT minutes_succeeded_not_null NOT NULL,
    retried integer DEFAULT 0 CONSTRAINT minutes_retried_not_null NOT NULL,
    dead integer DEFAULT 0 CONSTRAINT minutes_dead_not_null NOT NULL,
    cancelled integer DEFAULT 0 CONSTRAINT minutes_cancelled_not_null NOT NULL,
    other integer DEFAULT 0 CONSTRAINT minutes_other_not_null NOT NULL,
    waits integer[] CONSTRAINT minutes_waits_not_null NOT NULL,
    runs integer[] CONSTRAINT minutes_runs_not_null NOT NULL,
    run_seconds double precision DEFAULT 0 CONSTRAINT minutes_run_seconds_not_null NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.tenant_hours (
    hour timestamp with time zone NOT NULL,
    tenant text NOT NULL,
    ended integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    seconds double precision DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    role text NOT NULL,
    tenant text,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    created_by text NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    used_at timestamp with time zone,
    CONSTRAINT tokens_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text])))
);

ALTER TABLE sereno.tokens ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.tries (
    hour timestamp with time zone NOT NULL,
    task text NOT NULL,
    tries integer[] NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE sereno.unique_keys (
    task text NOT NULL,
    unique_key text NOT NULL,
    tenant text,
    job_id bigint NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE TABLE sereno.waiters (
    id bigint NOT NULL,
    until timestamp with time zone NOT NULL
);

ALTER TABLE sereno.waiters ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.waiters_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.weights (
    key text NOT NULL,
    weight double precision NOT NULL,
    changed_by text,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT weights_weight_check CHECK (((weight >= (0.001)::double precision) AND (weight <= (1000000)::double precision)))
);

ALTER TABLE ONLY sereno.attempts ATTACH PARTITION sereno.attempts_default DEFAULT;

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_default DEFAULT;

ALTER TABLE ONLY sereno.history ATTACH PARTITION sereno.history_dead FOR VALUES IN ('dead');

ALTER TABLE ONLY sereno.history ATTACH PARTITION sereno.history_done FOR VALUES IN ('succeeded', 'cancelled');

ALTER TABLE ONLY sereno.history_done ATTACH PARTITION sereno.history_done_default DEFAULT;

ALTER TABLE ONLY sereno.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (channel, tenant);

ALTER TABLE ONLY sereno.addresses
    ADD CONSTRAINT addresses_once UNIQUE (recipient_id, channel, address);

ALTER TABLE ONLY sereno.addresses
    ADD CONSTRAINT addresses_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.alert_rules
    ADD CONSTRAINT alert_rules_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.alerts
    ADD CONSTRAINT alerts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.archive_batches
    ADD CONSTRAINT archive_batches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.archive_files
    ADD CONSTRAINT archive_files_object_key UNIQUE (object);

ALTER TABLE ONLY sereno.archive_files
    ADD CONSTRAINT archive_files_pkey PRIMARY KEY (batch_id, number);

ALTER TABLE ONLY sereno.archived_again
    ADD CONSTRAINT archived_again_pkey PRIMARY KEY (kind, key);

ALTER TABLE ONLY sereno.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job_id, number, partition_at);

ALTER TABLE ONLY sereno.attempts_default
    ADD CONSTRAINT attempts_default_pkey PRIMARY KEY (job_id, number, partition_at);

ALTER TABLE ONLY sereno.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.bulk_operations
    ADD CONSTRAINT bulk_operations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.carried_jobs
    ADD CONSTRAINT carried_jobs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY sereno.carried_queues
    ADD CONSTRAINT carried_queues_pkey PRIMARY KEY (queue);

ALTER TABLE ONLY sereno.carrier_states
    ADD CONSTRAINT carrier_states_pkey PRIMARY KEY (queue);

ALTER TABLE ONLY sereno.channel_codes
    ADD CONSTRAINT channel_codes_pkey PRIMARY KEY (minute, channel, account, code);

ALTER TABLE ONLY sereno.channel_minutes
    ADD CONSTRAINT channel_minutes_pkey PRIMARY KEY (minute, channel, account);

ALTER TABLE ONLY sereno.channel_pauses
    ADD CONSTRAINT channel_pauses_pkey PRIMARY KEY (channel, account);

ALTER TABLE ONLY sereno.clock
    ADD CONSTRAINT clock_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY sereno.deleted_jobs
    ADD CONSTRAINT deleted_jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.deliveries
    ADD CONSTRAINT deliveries_once UNIQUE NULLS NOT DISTINCT (event_id, recipient_id, channel, address_id);

ALTER TABLE ONLY sereno.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.delivery_hours
    ADD CONSTRAINT delivery_hours_pkey PRIMARY KEY (hour, event, channel, state, reason);

ALTER TABLE ONLY sereno.delivery_tenant_hours
    ADD CONSTRAINT delivery_tenant_hours_pkey PRIMARY KEY (tenant, hour, channel);

ALTER TABLE ONLY sereno.dependencies
    ADD CONSTRAINT dependencies_pkey PRIMARY KEY (predecessor, successor);

ALTER TABLE ONLY sereno.duties
    ADD CONSTRAINT duties_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.early_receipts
    ADD CONSTRAINT early_receipts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.ended_attempts
    ADD CONSTRAINT ended_attempts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.error_groups
    ADD CONSTRAINT error_groups_pkey PRIMARY KEY (fingerprint);

ALTER TABLE ONLY sereno.error_hours
    ADD CONSTRAINT error_hours_pkey PRIMARY KEY (fingerprint, hour, tenant);

ALTER TABLE ONLY sereno.event_types
    ADD CONSTRAINT event_types_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.events
    ADD CONSTRAINT events_once UNIQUE NULLS NOT DISTINCT (type, tenant, subject, key);

ALTER TABLE ONLY sereno.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.failed_deliveries
    ADD CONSTRAINT failed_deliveries_pkey PRIMARY KEY (delivery_id);

ALTER TABLE ONLY sereno.fires
    ADD CONSTRAINT fires_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_default
    ADD CONSTRAINT fires_default_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.group_parts
    ADD CONSTRAINT group_parts_pkey PRIMARY KEY (group_id, part);

ALTER TABLE ONLY sereno.groups
    ADD CONSTRAINT groups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (who, key);

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_delivery_id_key UNIQUE (delivery_id);

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.job_chunks
    ADD CONSTRAINT job_chunks_pkey PRIMARY KEY (job_id, attempt, number);

ALTER TABLE ONLY sereno.job_streams
    ADD CONSTRAINT job_streams_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY sereno.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.key_rules
    ADD CONSTRAINT key_rules_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY sereno.lane_queues
    ADD CONSTRAINT lane_queues_pkey PRIMARY KEY (queue);

ALTER TABLE ONLY sereno.lane_wakes
    ADD CONSTRAINT lane_wakes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.limiters
    ADD CONSTRAINT limiters_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.message_ids
    ADD CONSTRAINT message_ids_pkey PRIMARY KEY (channel, account, provider_id, delivery_id);

ALTER TABLE ONLY sereno.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY sereno.minutes
    ADD CONSTRAINT minutes_pkey PRIMARY KEY (minute, queue, task);

ALTER TABLE ONLY sereno.pauses
    ADD CONSTRAINT pauses_pkey PRIMARY KEY (kind, name);

ALTER TABLE sereno.preferences
    ADD CONSTRAINT preferences_digest CHECK (((digest_seconds >= (0)::double precision) AND (digest_seconds <= (604800)::double precision))) NOT VALID;

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_once UNIQUE NULLS NOT DISTINCT (recipient_id, tenant, event, category, channel);

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.procedure_runs
    ADD CONSTRAINT procedure_runs_pkey PRIMARY KEY (job_id, attempt);

ALTER TABLE ONLY sereno.procedures
    ADD CONSTRAINT procedures_pkey PRIMARY KEY (target, name);

ALTER TABLE ONLY sereno.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY sereno.receipts
    ADD CONSTRAINT receipts_once UNIQUE (channel, receipt_id, delivery_id);

ALTER TABLE ONLY sereno.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.recipients
    ADD CONSTRAINT recipients_key UNIQUE (tenant, key);

ALTER TABLE ONLY sereno.recipients
    ADD CONSTRAINT recipients_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.refused_declarations
    ADD CONSTRAINT refused_declarations_pkey PRIMARY KEY (service, key);

ALTER TABLE ONLY sereno.relay_batches
    ADD CONSTRAINT relay_batches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.repeated_messages
    ADD CONSTRAINT repeated_messages_pkey PRIMARY KEY (queue, "position");

ALTER TABLE ONLY sereno.restored
    ADD CONSTRAINT restored_pkey PRIMARY KEY (kind, key);

ALTER TABLE ONLY sereno.saved_searches
    ADD CONSTRAINT saved_searches_list_tenant_name_key UNIQUE NULLS NOT DISTINCT (list, tenant, name);

ALTER TABLE ONLY sereno.schedule_ends
    ADD CONSTRAINT schedule_ends_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.schedules
    ADD CONSTRAINT schedules_key UNIQUE (key) WITH (fillfactor='75');

ALTER TABLE ONLY sereno.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id) WITH (fillfactor='75');

ALTER TABLE ONLY sereno.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.shares
    ADD CONSTRAINT shares_pkey PRIMARY KEY (queue, key);

ALTER TABLE ONLY sereno.sign_outs
    ADD CONSTRAINT sign_outs_pkey PRIMARY KEY (sign_in);

ALTER TABLE ONLY sereno.signal_waits
    ADD CONSTRAINT signal_waits_pkey PRIMARY KEY (job_id, name);

ALTER TABLE ONLY sereno.signals
    ADD CONSTRAINT signals_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (job_id, name);

ALTER TABLE ONLY sereno.subscriptions
    ADD CONSTRAINT subscriptions_once PRIMARY KEY (tenant, topic, recipient_id);

ALTER TABLE ONLY sereno.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (name, service);

ALTER TABLE ONLY sereno.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (event, channel, locale, tenant, part);

ALTER TABLE ONLY sereno.ten_minutes
    ADD CONSTRAINT ten_minutes_pkey PRIMARY KEY (minute, queue, task);

ALTER TABLE ONLY sereno.tenant_hours
    ADD CONSTRAINT tenant_hours_pkey PRIMARY KEY (hour, tenant);

ALTER TABLE ONLY sereno.tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);

ALTER TABLE ONLY sereno.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.tries
    ADD CONSTRAINT tries_pkey PRIMARY KEY (hour, task);

ALTER TABLE ONLY sereno.unique_keys
    ADD CONSTRAINT unique_keys_key UNIQUE NULLS NOT DISTINCT (task, unique_key, tenant);

ALTER TABLE ONLY sereno.waiters
    ADD CONSTRAINT waiters_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.weights
    ADD CONSTRAINT weights_pkey PRIMARY KEY (key);

CREATE INDEX addresses_by_text ON sereno.addresses USING btree (channel, address);

CREATE UNIQUE INDEX alerts_open ON sereno.alerts USING btree (rule, kind, subject) WHERE (resolved_at IS NULL);

CREATE INDEX alerts_resolved ON sereno.alerts USING btree (resolved_at) WHERE (resolved_at IS NOT NULL);

CREATE INDEX archive_batches_held ON sereno.archive_batches USING btree (drop_eligible_at) WHERE (dropped_at IS NULL);

CREATE INDEX archive_batches_open ON sereno.archive_batches USING btree (id) WHERE (verified_at IS NULL);

CREATE INDEX archive_files_failed ON sereno.archive_files USING btree (failed_at) WHERE (failed_at IS NOT NULL);

CREATE INDEX archive_files_ids ON sereno.archive_files USING btree (kind, first_id) WHERE (first_id IS NOT NULL);

CREATE INDEX archive_files_times ON sereno.archive_files USING btree (kind, from_at);

CREATE INDEX attempts_fingerprint ON ONLY sereno.attempts USING btree (fingerprint, job_id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX attempts_default_fingerprint_job_id_idx ON sereno.attempts_default USING btree (fingerprint, job_id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX audit_subject ON sereno.audit USING btree (subject, id DESC);

CREATE INDEX batches_due ON sereno.batches USING btree (purpose, channel, account, queue, due_at, id) WHERE (job_id IS NULL);

CREATE INDEX batches_gathering ON sereno.batches USING btree (channel, account, queue, due_at) WHERE (gathers AND (job_id IS NULL));

CREATE INDEX batches_taken ON sereno.batches USING btree (channel, account) WHERE (job_id IS NOT NULL);

CREATE INDEX bulk_operations_live ON sereno.bulk_operations USING btree (job_id) WHERE (state = ANY (ARRAY['waiting'::text, 'running'::text]));

CREATE INDEX bulk_operations_tenant ON sereno.bulk_operations USING btree (tenant, id) WHERE (tenant IS NOT NULL);

CREATE INDEX carried_jobs_stored ON sereno.carried_jobs USING btree (queue, stored_at);

CREATE INDEX deliveries_gathered ON sereno.deliveries USING btree (recipient_id, digest, id) WHERE (digest IS NOT NULL);

CREATE INDEX deliveries_of_recipient ON sereno.deliveries USING btree (recipient_id, id);

CREATE INDEX delivery_tenant_hours_old ON sereno.delivery_tenant_hours USING brin (hour);

CREATE INDEX dependencies_successor ON sereno.dependencies USING btree (successor);

CREATE INDEX dependencies_to_check ON sereno.dependencies USING btree (predecessor) WHERE to_check;

CREATE INDEX error_hours_hour ON sereno.error_hours USING btree (hour);

CREATE INDEX events_subject ON sereno.events USING btree (subject, id) WHERE (subject IS NOT NULL);

CREATE INDEX events_trace ON sereno.events USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE INDEX events_unmatched ON sereno.events USING btree (due_at) WHERE (matched_at IS NULL);

CREATE INDEX failed_deliveries_of_channel ON sereno.failed_deliveries USING btree (channel, state, delivery_id);

CREATE INDEX failed_deliveries_of_state ON sereno.failed_deliveries USING btree (state, delivery_id);

CREATE INDEX failed_deliveries_of_tenant ON sereno.failed_deliveries USING btree (tenant, state, delivery_id) WHERE (tenant <> ''::text);

CREATE INDEX fires_skipped ON ONLY sereno.fires USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_default_schedule_id_planned_at_idx ON sereno.fires_default USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX groups_cancelling ON sereno.groups USING btree (id) WHERE cancelling;

CREATE INDEX history_dead_blocks ON sereno.history_dead USING btree (queue, ((keys ->> 'order'::text))) WHERE (keys ? 'blocks'::text);

CREATE INDEX history_dead_fingerprint ON sereno.history_dead USING btree (fingerprint, id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX history_dead_finished ON sereno.history_dead USING btree (finished_at);

CREATE INDEX history_group ON ONLY sereno.history USING btree (group_id, id) WHERE (group_id IS NOT NULL);

CREATE INDEX history_dead_group_id_id_idx ON sereno.history_dead USING btree (group_id, id) WHERE (group_id IS NOT NULL);

CREATE INDEX history_trace ON ONLY sereno.history USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_dead_hashtext_id_idx ON sereno.history_dead USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_id ON ONLY sereno.history USING btree (id);

CREATE INDEX history_dead_id_idx ON sereno.history_dead USING btree (id);

CREATE INDEX history_schedule ON ONLY sereno.history USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_dead_schedule_id_finished_at_idx ON sereno.history_dead USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_done_group_id_id_idx ON ONLY sereno.history_done USING btree (group_id, id) WHERE (group_id IS NOT NULL);

CREATE INDEX history_done_hashtext_id_idx ON ONLY sereno.history_done USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_done_id_idx ON ONLY sereno.history_done USING btree (id);

CREATE INDEX history_done_schedule_id_finished_at_idx ON ONLY sereno.history_done USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_done_default_group_id_id_idx ON sereno.history_done_default USING btree (group_id, id) WHERE (group_id IS NOT NULL);

CREATE INDEX history_done_default_hashtext_id_idx ON sereno.history_done_default USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_done_default_id_idx ON sereno.history_done_default USING btree (id);

CREATE INDEX history_done_default_schedule_id_finished_at_idx ON sereno.history_done_default USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX idempotency_keys_at ON sereno.idempotency_keys USING btree (at);

CREATE INDEX inbox_archived ON sereno.inbox USING btree (recipient_id, id DESC) WHERE (archived_at IS NOT NULL);

CREATE INDEX inbox_of_recipient ON sereno.inbox USING btree (recipient_id, id DESC) WHERE (archived_at IS NULL);

CREATE INDEX inbox_unread ON sereno.inbox USING btree (recipient_id) WHERE ((read_at IS NULL) AND (archived_at IS NULL));

CREATE INDEX job_streams_ended ON sereno.job_streams USING btree (ended_at);

CREATE INDEX jobs_group ON sereno.jobs USING btree (group_id, id) WHERE (group_id IS NOT NULL);

CREATE INDEX jobs_in_order ON sereno.jobs USING btree (order_id, id) WHERE (order_id IS NOT NULL);

CREATE INDEX jobs_lane ON sereno.jobs USING btree (queue, lane, priority, ready_seq) WHERE ((state = 'ready'::text) AND (lane IS NOT NULL));

CREATE INDEX jobs_ready ON sereno.jobs USING btree (queue, priority, ready_seq) WHERE ((state = 'ready'::text) AND (lane IS NULL));

CREATE INDEX jobs_requires ON sereno.jobs USING btree (queue, task, requires) WHERE ((state = 'ready'::text) AND (requires IS NOT NULL));

CREATE INDEX jobs_running ON sereno.jobs USING btree (session_id) WHERE (state = 'running'::text);

CREATE INDEX jobs_schedule ON sereno.jobs USING btree (schedule_id) WHERE (schedule_id IS NOT NULL);

CREATE INDEX jobs_scheduled ON sereno.jobs USING btree (run_at) WHERE (state = 'scheduled'::text);

CREATE INDEX jobs_trace ON sereno.jobs USING btree (hashtext(
CASE
    WHEN (trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN substr(trace, 4, 32)
    ELSE trace
END), id) WHERE (trace IS NOT NULL);

CREATE UNIQUE INDEX jobs_unique ON sereno.jobs USING btree (task, unique_key, tenant) NULLS NOT DISTINCT WHERE (unique_key IS NOT NULL);

CREATE INDEX jobs_waiting ON sereno.jobs USING btree (queue) WHERE (state = 'waiting'::text);

CREATE INDEX lanes_fair ON sereno.lanes USING btree (queue, fair) WHERE (fair IS NOT NULL);

CREATE INDEX lanes_idle ON sereno.lanes USING btree (served_at) WHERE (NOT has_work);

CREATE INDEX lanes_open ON sereno.lanes USING btree (queue, band, turn) WHERE (has_work AND (waits_for IS NULL));

CREATE INDEX lanes_passed_over ON sereno.lanes USING btree (id) WHERE passed_over;

CREATE INDEX lanes_waiting ON sereno.lanes USING btree (waits_for, turn) WHERE (has_work AND (waits_for IS NOT NULL));

CREATE INDEX limiters_check ON sereno.limiters USING btree (check_at) WHERE (check_at IS NOT NULL);

CREATE INDEX limiters_limit ON sereno.limiters USING btree (limit_name);

CREATE INDEX limits_changed ON sereno.limits USING btree (changed_at);

CREATE INDEX limits_queue ON sereno.limits USING btree (queue) WHERE (queue IS NOT NULL);

CREATE INDEX logs_at ON sereno.logs USING btree (at);

CREATE INDEX logs_event ON sereno.logs USING btree (event, id);

CREATE INDEX logs_job ON sereno.logs USING btree (job_id, id) WHERE (job_id IS NOT NULL);

CREATE INDEX logs_tenant ON sereno.logs USING btree (tenant, id) WHERE (tenant IS NOT NULL);

CREATE INDEX logs_trace ON sereno.logs USING btree (trace_id, id) WHERE (trace_id IS NOT NULL);

CREATE INDEX preferences_default ON sereno.preferences USING btree (tenant) WHERE (recipient_id IS NULL);

CREATE INDEX procedure_runs_finished ON sereno.procedure_runs USING btree (finished_at);

CREATE INDEX procedure_runs_newest ON sereno.procedure_runs USING btree (target, name, finished_at);

CREATE INDEX receipts_of_delivery ON sereno.receipts USING btree (delivery_id);

CREATE INDEX recipients_in_order ON sereno.recipients USING btree (tenant, id);

CREATE INDEX restored_until ON sereno.restored USING btree (until);

CREATE INDEX schedules_declared ON sereno.schedules USING btree (declared_by) WHERE (declared_by IS NOT NULL);

CREATE INDEX schedules_due ON sereno.schedules USING btree (next_run_at) WHERE (next_run_at IS NOT NULL);

CREATE INDEX schedules_free ON sereno.schedules USING btree (id) WHERE ((held_at IS NOT NULL) AND held_free);

CREATE INDEX schedules_held ON sereno.schedules USING btree (id) WHERE (held_at IS NOT NULL);

CREATE INDEX schedules_tenant ON sereno.schedules USING btree (tenant, key) WHERE (tenant IS NOT NULL);

CREATE INDEX schedules_trouble ON sereno.schedules USING btree (state, id) WHERE (state = ANY (ARRAY['parked'::text, 'disabled'::text]));

CREATE INDEX schedules_waiting ON sereno.schedules USING btree (id) WHERE ((state = 'enabled'::text) AND (next_run_at IS NULL));

CREATE INDEX sessions_alive ON sereno.sessions USING btree (id) WHERE (state = 'alive'::text);

CREATE INDEX sessions_idle ON sereno.sessions USING btree (id) WHERE idle;

CREATE INDEX shares_clock ON sereno.shares USING btree (queue, clock);

CREATE INDEX signal_waits_name ON sereno.signal_waits USING btree (name, COALESCE(tenant, ''::text), job_id) WHERE (attempt IS NOT NULL);

CREATE INDEX signal_waits_unchecked ON sereno.signal_waits USING btree (job_id) WHERE (NOT is_checked);

CREATE INDEX signals_name ON sereno.signals USING btree (name, COALESCE(tenant, ''::text), id);

CREATE INDEX signals_sent_at ON sereno.signals USING btree (sent_at);

CREATE INDEX signals_unchecked ON sereno.signals USING btree (id) WHERE (NOT is_checked);

CREATE INDEX subscriptions_of_recipient ON sereno.subscriptions USING btree (recipient_id, topic);

CREATE UNIQUE INDEX tokens_name ON sereno.tokens USING btree (tenant, name) NULLS NOT DISTINCT WHERE (revoked_at IS NULL);

CREATE INDEX unique_keys_until ON sereno.unique_keys USING btree (until) WHERE (until < 'infinity'::timestamp with time zone);

ALTER INDEX sereno.attempts_fingerprint ATTACH PARTITION sereno.attempts_default_fingerprint_job_id_idx;

ALTER INDEX sereno.attempts_pkey ATTACH PARTITION sereno.attempts_default_pkey;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_default_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_default_schedule_id_planned_at_idx;

ALTER INDEX sereno.history_group ATTACH PARTITION sereno.history_dead_group_id_id_idx;

ALTER INDEX sereno.history_trace ATTACH PARTITION sereno.history_dead_hashtext_id_idx;

ALTER INDEX sereno.history_id ATTACH PARTITION sereno.history_dead_id_idx;

ALTER INDEX sereno.history_schedule ATTACH PARTITION sereno.history_dead_schedule_id_finished_at_idx;

ALTER INDEX sereno.history_done_group_id_id_idx ATTACH PARTITION sereno.history_done_default_group_id_id_idx;

ALTER INDEX sereno.history_done_hashtext_id_idx ATTACH PARTITION sereno.history_done_default_hashtext_id_idx;

ALTER INDEX sereno.history_done_id_idx ATTACH PARTITION sereno.history_done_default_id_idx;

ALTER INDEX sereno.history_done_schedule_id_finished_at_idx ATTACH PARTITION sereno.history_done_default_schedule_id_finished_at_idx;

ALTER INDEX sereno.history_group ATTACH PARTITION sereno.history_done_group_id_id_idx;

ALTER INDEX sereno.history_trace ATTACH PARTITION sereno.history_done_hashtext_id_idx;

ALTER INDEX sereno.history_id ATTACH PARTITION sereno.history_done_id_idx;

ALTER INDEX sereno.history_schedule ATTACH PARTITION sereno.history_done_schedule_id_finished_at_idx;

CREATE TRIGGER clock_moved AFTER INSERT OR DELETE OR UPDATE ON sereno.clock FOR EACH STATEMENT EXECUTE FUNCTION sereno.notify_clock();

CREATE TRIGGER failed_delivery_changed AFTER UPDATE OF state ON sereno.deliveries FOR EACH ROW WHEN (((old.state <> new.state) AND ((old.state = ANY (sereno.failed_states())) OR (new.state = ANY (sereno.failed_states()))))) EXECUTE FUNCTION sereno.keep_failed_delivery();

CREATE TRIGGER failed_delivery_gone AFTER DELETE ON sereno.deliveries FOR EACH ROW WHEN ((old.state = ANY (sereno.failed_states()))) EXECUTE FUNCTION sereno.keep_failed_delivery();

CREATE TRIGGER failed_delivery_new AFTER INSERT ON sereno.deliveries FOR EACH ROW WHEN ((new.state = ANY (sereno.failed_states()))) EXECUTE FUNCTION sereno.keep_failed_delivery();

CREATE TRIGGER recheck_links AFTER DELETE ON sereno.history_dead FOR EACH ROW EXECUTE FUNCTION sereno.recheck_links();

CREATE TRIGGER reread_lanes AFTER DELETE ON sereno.pauses FOR EACH STATEMENT EXECUTE FUNCTION sereno.reread_lanes_of_resumed();

CREATE TRIGGER wake_lane_of_new AFTER INSERT ON sereno.jobs FOR EACH ROW WHEN (((new.lane IS NOT NULL) AND (new.state = 'ready'::text))) EXECUTE FUNCTION sereno.wake_lane();

CREATE TRIGGER wake_lane_of_ready AFTER UPDATE OF ready_seq, queue, priority, lane ON sereno.jobs FOR EACH ROW WHEN (((new.lane IS NOT NULL) AND (new.state = 'ready'::text))) EXECUTE FUNCTION sereno.wake_lane();

CREATE TRIGGER wake_order_of_freed AFTER DELETE ON sereno.history_dead FOR EACH ROW WHEN ((old.keys ? 'blocks'::text)) EXECUTE FUNCTION sereno.wake_order();

CREATE TRIGGER wake_order_of_gone AFTER DELETE ON sereno.jobs FOR EACH ROW WHEN ((old.order_id IS NOT NULL)) EXECUTE FUNCTION sereno.wake_order();

ALTER TABLE ONLY sereno.addresses
    ADD CONSTRAINT addresses_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;

ALTER TABLE ONLY sereno.archive_files
    ADD CONSTRAINT archive_files_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES sereno.archive_batches(id);

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;

ALTER TABLE ONLY sereno.subscriptions
    ADD CONSTRAINT subscriptions_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;
