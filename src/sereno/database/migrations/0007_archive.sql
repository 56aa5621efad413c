-- Archive: old rows are moved in batches to the archive schema, written to files, and restored from them.
-- A batch is a table of the archive schema that no longer changes, until each of its files was read back and verified
-- and its grace period is over; only then is the table dropped.

create schema if not exists sereno_archive;

-- Batches. `held_in`: the table that contains the rows; null after it was dropped. `as_texts`: columns written to
-- files as texts.
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

-- Files of a batch, one object in the object store each. `first_block` to `last_block`: the pages of the batch's
-- table that the file contains; the table no longer changes.
create table sereno.archive_files (
    batch_id     bigint not null references sereno.archive_batches (id),
    number       integer not null,
    kind         text not null,
    first_block  bigint not null,
    last_block   bigint not null,
    object       text not null unique,
    rows         bigint,
    keys_hash    text,
    -- Checksum of all columns of all rows; see `file_columns`.
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

-- Restored rows, which are not archived again before `until`; a row that is still as it was archived is then deleted.
create table sereno.restored (
    kind         text not null,
    key          text not null,
    batch_id     bigint not null,
    digest       text not null,
    restored_at  timestamptz not null default sereno.now(),
    until        timestamptz not null,
    primary key (kind, key)
);

create index restored_until on sereno.restored (until);

-- Keys of restored rows that had changed when they expired: such a row may be in two files.
create table sereno.archived_again (
    kind  text not null,
    key   text not null,
    primary key (kind, key)
);

-- Return whether a type, or the base type of a domain, has a user-defined function that casts it to text.
create function sereno.has_own_cast(of_type oid) returns boolean
    language sql stable as $$
    with recursive base(type) as (
        values (of_type) union select typbasetype from base join pg_type on pg_type.oid = base.type where typbasetype <> 0
    )
    select exists (select from pg_cast join base on castsource = base.type
                   where casttarget = 'text'::regtype and castmethod = 'f' and castsource >= 16384)
    $$;

-- Return an SQL expression for the key of a row as a text that every reader of the file computes alike: instants are
-- microseconds, dates are days. Infinite ones, and columns that are texts in the file, are what PostgreSQL prints. So
-- is a type with a cast of its own: a batch may be dropped by its owner, which must not run another role's code.
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

-- Create a batch with an empty table like its source, to be filled in the same transaction. The caller need not be
-- able to read the source: its columns are read from the catalogue.
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

-- Archive a whole day: its partition is detached, so that no row can be added, and becomes the batch's table. Return
-- the batch, or null for an empty day.
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
end $$;

-- Move the children of a batch's rows into batches of their own: attempts of jobs, receipts of deliveries. One page
-- per call, in the order of the parents' ids: at most `most` parents, and only as many as have `most` children
-- together (at least one). `children_after` stores the position. The batch row is locked, so that two callers do not
-- move the same page.
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
end $$;

-- Delete a batch that turned out to be empty; refuse one that contains rows.
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
        raise exception 'batch % contains rows and is not deleted', batch using errcode = 'data_exception';
    end if;
    execute format('drop table sereno_archive.%I', held);
end $$;

-- Move at most `most` rows of a table (alias `t`) that match an internal condition into a batch; return their number.
-- SKIP LOCKED: a row that another transaction has locked is left for a later call. Settings are fixed, because
-- restored rows are found by the text of their key, which must be the same for archiving and restoring.
create function sereno.archive_found(of_kind text, source regclass, keys text[], moment text, condition text, most integer) returns bigint
    language plpgsql
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
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

-- Archive at most `most` rows of sereno's own tables that are older than `before` and no longer needed; return their
-- number.
create function sereno.archive_rows(part text, before timestamptz, most integer) returns bigint
    language plpgsql
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
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
end $$;

-- Archive rows of an application's table whose time is before `before`. The table is refused if deleting its rows
-- would delete or change rows elsewhere.
create function sereno.archive_table(named text, moment text, before timestamptz, most integer) returns bigint
    language plpgsql
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
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

-- Plan the files of a batch, of about `most` rows each, by the pages of its table; return their number. Done once:
-- the batch row is locked, so that a second caller waits and finds the plan.
create function sereno.plan_files(of_batch bigint, most integer) returns integer
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' as $$
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
end $$;

-- Return the condition that selects the rows of a file. A file with all rows needs none, so that an index can return
-- them in order, without a sort.
create function sereno.part_of_table(first_block bigint, last_block bigint) returns text
    language sql immutable as $$
    select case when first_block = 0 and last_block = 4294967294 then ''
                else format(' where ctid >= ''(%s,0)''::tid and ctid < ''(%s,0)''::tid', first_block, last_block) end
$$;

-- Return whether a column is written to files in its own type, because Parquet has it; all others are written as
-- texts. So are key columns of types that a reader of the file might print differently from `archive_key`.
create function sereno.is_native(of_column pg_attribute, key_columns text[], as_texts text[]) returns boolean
    language sql immutable as $$
    select (of_column).attname <> all(as_texts) and (
        (of_column).atttypid = any('{int2, int4, int8, text, varchar, timestamptz, timestamp, date}'::regtype[])
        or ((of_column).attname <> all(key_columns) and (of_column).atttypid = any('{bool, float4, float8, bpchar, bytea}'::regtype[])))
$$;

-- Return an SQL expression for a column as a text. A type with a cast of its own is what its output function prints:
-- a batch is dropped by its owner, which must not run another role's code.
create function sereno.text_of(name text, of_type oid) returns text
    language sql stable as $$
    select case when sereno.has_own_cast(of_type) then format('case when %1$I is not null then format(''%%s'', %1$I) end', name)
                else format('%I::text', name) end
$$;

-- Return the columns of a file: `value` reads one, `digest` is the SHA-256 of its values in a page of 8,192 rows, as a
-- reader of the file computes it (`archive/checksum.py`), and `fields` are what a page of them is sent as
-- (`archive/pages.py`), so that a page is read once, to be hashed and to be written. A column's values are joined once
-- per page, because SHA-256 costs PostgreSQL 2 us a call, whatever the length. Numbers and instants are hashed as the
-- bytes that PostgreSQL sends, so no rounding and no text format is involved. A long value is replaced by its own
-- SHA-256: a page of them might not fit into memory; the reader is told so and reads the column by rows.
-- `nulls`: whether none, some or all values of the file are null, counted first: a column of nulls costs nothing more.
create function sereno.file_columns(of_batch bigint, of_number integer) returns table (
    place smallint, name text, type text, nulls text, value text, digest text, fields text, is_rising boolean)
    language plpgsql stable as $$
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
end $$;

-- Return a query for the pages of a file, in the order of the key: the number of rows, their keys, the lowest and
-- highest number and moment, and `computed` from the columns `read`. The index of the key finds the pages one after
-- the other, so memory use does not grow with the table.
create function sereno.page_query(of_batch bigint, of_number integer, read text, computed text) returns text
    language plpgsql stable as $$
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
end $$;

-- Return the row count and checksums that a file must have, computed from the table.
create function sereno.measure_file(of_batch bigint, of_number integer, out rows bigint, out keys_hash text, out content_hash text,
    out first_id bigint, out last_id bigint, out from_at timestamptz, out to_at timestamptz)
    language plpgsql stable set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' set enable_sort = off set jit = off as $$
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
end $$;

-- Return what is needed to write a file: `query` for its pages, with the digest and the fields of all columns; its
-- columns, each with a query for its values by rows; and `rising`, columns that mostly grow.
create function sereno.file_query(of_batch bigint, of_number integer, out query text, out columns jsonb, out rising text[])
    language sql stable as $$
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

-- Drop the table of a batch when its grace period is over, every file was read back and verified, and the files
-- together contain every row of the table. The pages of the files are all pages of the table, so each row is compared
-- with its file. The table is locked exclusively, so that no row changes between the comparison and the drop; after
-- one second without the lock, it gives up.
create function sereno.drop_batch(of_batch bigint) returns boolean
    language plpgsql set lock_timeout = '1s' as $$
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

-- Return whether a table of the archive contains a row with this number. A table that the caller may not read is not
-- searched.
create function sereno.is_held(held text, column_name text, wanted bigint) returns boolean
    language plpgsql stable as $$
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
end $$;

-- Return the table that rows of a kind are restored to: jobs and fires are routed to their partition.
create function sereno.restore_target(of_kind text, source text) returns regclass
    language sql stable as $$
    select to_regclass(case of_kind when 'jobs' then 'sereno.history' when 'fires' then 'sereno.fires' else source end)
$$;

-- Return the parent of a kind: its rows are restored and removed together with their parents.
create function sereno.restore_parent(of_kind text, out kind text, out refers text)
    language sql immutable as $$
    select case of_kind when 'attempts' then 'jobs' when 'receipts' then 'deliveries' end,
           case of_kind when 'attempts' then 'job_id' when 'receipts' then 'delivery_id' end
$$;

-- Return the statement that restores rows. `origin`: the text behind FROM; `value_of`: a format for one of its
-- values, with the number of the column (from 0) and its name. `$1` is the parameter of the origin, `$2` until when
-- the rows stay.
--
-- A row whose key exists, also as a live job, is left as it is; its mark, if it has one, is prolonged. A row that
-- another conflict prevents (a unique key, a trigger) is counted as refused. A job that blocked an order does not
-- block it again after it is restored: the order has long continued.
create function sereno.restore_query(of_batch bigint, names text[], without text[], origin text, value_of text) returns text
    language plpgsql stable as $$
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
end $$;

-- Restore rows of a file: an array of arrays of texts, in the order of `names`.
create function sereno.restore_rows(of_batch bigint, names text[], rows jsonb, until timestamptz, without text[],
    out matched bigint, out restored bigint, out present bigint)
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
begin
    execute sereno.restore_query(of_batch, names, without, 'jsonb_array_elements($1) as r', 'r ->> %1$s')
    into matched, restored, present using rows, until;
end $$;

-- Return the FROM clause for rows of a batch whose table still exists: a range of pages, by the first key column or
-- by time.
create function sereno.held_origin(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamptz,
    to_at timestamptz) returns text
    language sql stable as $$
    select format('sereno_archive.%I as h where h.ctid >= ''(%s,0)''::tid and h.ctid < ''(%s,0)''::tid', held_in, first_block, last_block)
           || case when numbers is null then '' else format(' and h.%I = any(%L::text[]::%s[])', attname, numbers, format_type(atttypid, -1)) end
           || case when from_at is null then '' else format(' and h.%I::timestamptz >= %L', time_column, from_at) end
           || case when to_at is null then '' else format(' and h.%I::timestamptz < %L', time_column, to_at) end
    from sereno.archive_batches
    join pg_attribute on attrelid = format('sereno_archive.%I', held_in)::regclass and attname = key_columns[1]
    where id = of_batch and dropped_at is null
$$;

-- Lock the table of a batch, so that it is not dropped before the transaction ends. Refuse a batch that was dropped, also
-- while this waited for the lock: the caller has to search the files.
create function sereno.hold_table(of_batch bigint) returns void
    language plpgsql as $$
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

-- Restore rows of a batch whose table still exists.
create function sereno.restore_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamptz,
    to_at timestamptz, until timestamptz, without text[], out matched bigint, out restored bigint, out present bigint)
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
declare
    names text[];
begin
    perform sereno.hold_table(of_batch);
    select array_agg(attname::text order by attnum) into names from pg_attribute
    where attrelid = (select format('sereno_archive.%I', held_in)::regclass from sereno.archive_batches where id = of_batch)
      and attnum > 0 and not attisdropped;
    execute sereno.restore_query(of_batch, names, without, sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at), 'h.%2$I')
    into matched, restored, present using null::text, until;
end $$;

-- Return the number of rows that restore_held would restore.
create function sereno.count_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamptz,
    to_at timestamptz, out matched bigint)
    language plpgsql set timezone = 'UTC' as $$
begin
    perform sereno.hold_table(of_batch);
    execute 'select count(*) from ' || sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at) into matched;
end $$;

-- Return an SQL expression that turns a part of a key back into a value: the inverse of `archive_key`.
create function sereno.key_value(part text, of_type oid) returns text
    language sql stable as $$
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
$$;

-- Return the condition by which a mark (alias `m`) finds its row (alias `t`): by the key columns, so that an index
-- can be used. A key that contains a tab is not found.
create function sereno.mark_finds(target regclass, keys text[]) returns text
    language sql stable as $$
    select string_agg(format('t.%I = case when m.tabs = %s then %s end', name, cardinality(keys) - 1,
                             sereno.key_value(case when cardinality(keys) = 1 then 'm.key' else format('split_part(m.key, chr(9), %s)', place) end,
                                              atttypid)), ' and ' order by place)
    from unnest(keys) with ordinality as named (name, place)
    join pg_attribute on attrelid = target and attname = name and not attisdropped
    having count(*) = cardinality(keys)
$$;

-- Expire marks of a kind, all of one batch: rows that are as they were archived are deleted, with their children;
-- they are still in the archive. Others lose their mark, and are archived again like any other row. Both results are
-- null when no mark has expired. Children are deleted with their parents; marks of children that remain have no
-- effect. The advisory lock serialises expiry and restore.
create function sereno.leave_restored(of_kind text, most integer, out gone bigint, out changed bigint)
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
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
end $$;
