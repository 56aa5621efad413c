-- What is old leaves in batches. A batch is a table of the archive schema, which nobody writes to any more, until
-- each of its files was read back and verified and its grace is over; only then is the table dropped.

create schema if not exists sereno_archive;

create table sereno.archive_batches (
    id                bigint generated always as identity primary key,
    kind              text not null,
    source            text not null,
    held_in           text,
    key_columns       text[] not null,
    time_column       text not null,
    columns           jsonb,
    as_texts          text[] not null default '{}',
    schema_version    integer not null,
    nonce             text not null default substr(md5(gen_random_uuid()::text), 1, 8),
    rows              bigint,
    children_moved    boolean not null default true,
    -- The children of rows up to this id have been moved.
    children_after    bigint not null default 0,
    moved_at          timestamptz not null default sereno.now(),
    verified_at       timestamptz,
    drop_eligible_at  timestamptz,
    dropped_at        timestamptz,
    error             text,
    constraint archive_batches_verified check ((verified_at is null) = (drop_eligible_at is null)),
    constraint archive_batches_dropped check (dropped_at is null or (held_in is null and dropped_at >= drop_eligible_at)),
    constraint archive_batches_held check (dropped_at is not null or held_in is not null)
);

create index archive_batches_open on sereno.archive_batches (id) where verified_at is null;
create index archive_batches_held on sereno.archive_batches (drop_eligible_at) where dropped_at is null;

-- One object each. `first_block` to `last_block`: which pages of the table it holds; the table stands still.
create table sereno.archive_files (
    batch_id     bigint not null references sereno.archive_batches (id),
    number       integer not null,
    kind         text not null,
    first_block  bigint not null,
    last_block   bigint not null,
    object       text not null unique,
    rows         bigint,
    keys_hash    text,
    -- Of all columns of all rows; see `content_digest`.
    content_hash text,
    first_id     bigint,
    last_id      bigint,
    from_at      timestamptz,
    to_at        timestamptz,
    bytes        bigint,
    sha256       text,
    uploaded_at  timestamptz,
    verified_at  timestamptz,
    checked_at   timestamptz,
    tries        integer not null default 0,
    failed_at    timestamptz,
    error        text,
    primary key (batch_id, number),
    constraint archive_files_verified check (verified_at is null or (rows is not null and keys_hash is not null and content_hash is not null and sha256 is not null
        and bytes is not null and uploaded_at is not null))
);

create index archive_files_ids on sereno.archive_files (kind, first_id) where first_id is not null;
create index archive_files_times on sereno.archive_files (kind, from_at);
create index archive_files_failed on sereno.archive_files (failed_at) where failed_at is not null;

-- Whether somebody has written a function by which values of a type, or of what a domain is made of, become texts.
create function sereno.has_own_cast(of_type oid) returns boolean
    language sql stable as $$
    with recursive base(type) as (
        values (of_type) union select typbasetype from base join pg_type on pg_type.oid = base.type where typbasetype <> 0
    )
    select exists (select from pg_cast join base on castsource = base.type
                   where casttarget = 'text'::regtype and castmethod = 'f' and castsource >= 16384)
    $$;

-- The key of a row as an expression of a text, the same for whoever reads the file: instants are microseconds, dates are days.
-- Those that no calendar says, and columns that are texts in the file, are what PostgreSQL writes. So is a type with a cast of
-- its own: a batch may be dropped by its owner, which must not run another role's code.
create function sereno.archive_key(held regclass, names text[], prefix text default '', texts text[] default '{}') returns text
    language sql stable as $$
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
$$;

-- Whoever may read one table may read the other.
create function sereno.share_reading(source regclass, target regclass) returns void
    language plpgsql as $$
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

-- A new batch with an empty table like its source, to be filled in the same transaction. Whoever makes the table need not
-- be able to read the source: its columns are in the catalogue.
create function sereno.new_batch(of_kind text, source regclass, keys text[], moment text, out batch bigint, out held text)
    language plpgsql as $$
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

-- A whole day leaves as it is: detached, so that nothing can arrive any more. Answers the batch; none for an empty day.
create function sereno.archive_day(of_kind text, name text) returns bigint
    language plpgsql set lock_timeout = '1s' as $$
declare
    parent text := case of_kind when 'jobs' then 'history_done' when 'fires' then 'fires' when 'attempts' then 'attempts' end;
    batch bigint;
    held text;
    is_empty boolean;
begin
    if parent is null or name !~ ('^' || parent || '_[0-9]{8}$') then
        raise exception '% is not a day of %', name, of_kind;
    end if;
    -- Two may get here together; whoever comes second finds the day gone.
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
end $$;

-- What hangs on the rows of a batch follows into batches of their own: attempts of jobs, receipts of deliveries. A page at a time, in
-- the order of the parents' ids: of at most so many parents, and of no more than have so many children together (of one at least).
-- `children_after` says how far it got.
create function sereno.archive_children(of_batch bigint, most integer, out moved bigint, out is_done boolean)
    language plpgsql as $$
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
        -- Those that can have any: a success at the first try has none.
        execute format('select array(select id from sereno_archive.%I where id > %L%s order by id limit %s)', parent.held_in, parent.children_after,
                       case parent.kind when 'jobs' then ' and (state <> ''succeeded'' or attempt > 1)' else '' end, most) into parents;
        -- By index: joined, all days of attempts are read.
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
end $$;

-- A batch that turned out to be empty never was. One that holds anything stays, whoever asks.
create function sereno.forget_batch(batch bigint, held text) returns void
    language plpgsql as $$
declare
    is_empty boolean;
begin
    delete from sereno.archive_batches where id = batch and held_in = held and rows is null;
    if not found then
        raise exception 'there is no batch % in %', batch, held using errcode = 'undefined_object';
    end if;
    execute format('select not exists (select from sereno_archive.%I)', held) into is_empty;
    if not is_empty then
        raise exception 'batch % holds rows, and is not forgotten', batch using errcode = 'data_exception';
    end if;
    execute format('drop table sereno_archive.%I', held);
end $$;

-- Rows of a table, `t`, that a condition of ours finds, at most so many: a batch. Answers how many there were.
create function sereno.archive_found(of_kind text, source regclass, keys text[], moment text, condition text, most integer) returns bigint
    language plpgsql as $$
declare
    made record;
    moved bigint;
    any_row boolean;
begin
    condition := format('%s and not exists (select from sereno.restored r where r.kind = %L and r.key = %s)',
                    condition, of_kind, sereno.archive_key(source, keys, 't.'));
    -- Only: where others inherit from a table, the place of a row says nothing.
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
    -- Those beyond the first page follow in transactions of their own.
    perform sereno.archive_children(made.batch, most);
    if of_kind = 'deliveries' then
        execute format('delete from sereno.message_ids where delivery_id in (select id from sereno_archive.%I)', made.held);
    end if;
    return moved;
end $$;

-- Rows of ours that are older than this and that nobody needs any more, at most so many; answers how many left.
create function sereno.archive_rows(part text, before timestamptz, most integer) returns bigint
    language plpgsql as $$
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
            -- What is being sent or is still to be sent stays; of the others no provider says anything any more.
            return sereno.archive_found('deliveries', 'sereno.deliveries', array['id'], 'created_at',
                't.created_at ' || old || ' and t.changed_at ' || old || $found$ and t.state not in ('pending', 'sending')$found$, most);
        when 'events' then
            return sereno.archive_found('events', 'sereno.events', array['id'], 'created_at',
                't.created_at ' || old || ' and t.due_at ' || old || ' and t.matched_at is not null '
                'and not exists (select from sereno.deliveries d where d.event_id = t.id)', most);
        when 'logs' then
            return sereno.archive_found('logs', 'sereno.logs', array['id'], 'at', 't.at ' || old, most);
        else
            raise exception '% is nothing that is archived by rows', part;
    end case;
end $$;

-- A table of somebody else's: rows whose time is before this. Nothing may be deleted or changed elsewhere because of it.
create function sereno.archive_table(named text, moment text, before timestamptz, most integer) returns bigint
    language plpgsql as $$
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
            hint = 'Rows are told apart by it when a file is verified: add one.';
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
