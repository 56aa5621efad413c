-- What was archived can come back: from the table that still holds it, or from its file. `sereno.restored` marks each row,
-- until when it stays, and what it looked like: what is as it was then leaves again without another file.

-- Rows that somebody brought back: left in peace until then; what is still as it was archived is then simply removed.
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

-- Keys of rows that came back and were not as before when they left: such a row may lie in two files.
create table sereno.archived_again (
    kind  text not null,
    key   text not null,
    primary key (kind, key)
);

-- Whether a table of the archive holds a row of this number. What the caller may not read is not looked into.
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

-- Where rows of a kind come back to: finished jobs and fires find their partition themselves.
create function sereno.restore_target(of_kind text, source text) returns regclass
    language sql stable as $$
    select to_regclass(case of_kind when 'jobs' then 'sereno.history' when 'fires' then 'sereno.fires' else source end)
$$;

-- Which rows of a kind hang on which others: they come and go with them.
create function sereno.restore_parent(of_kind text, out kind text, out refers text)
    language sql immutable as $$
    select case of_kind when 'attempts' then 'jobs' when 'receipts' then 'deliveries' end,
           case of_kind when 'attempts' then 'job_id' when 'receipts' then 'delivery_id' end
$$;

-- The statement that brings rows back. `origin`: what stands behind `from`; `value_of`: how a value of it is written, with the
-- number of its column (from 0) and its name. `$1` is what the origin needs, `$2` until when the rows stay.
--
-- A row whose key is there already, live jobs among them, is left alone; its mark, if it has one, holds longer. What else stands
-- in the way of a row (another unique key, a trigger) is counted as refused. A job that blocked those behind it, in an order that
-- has long gone on, does not block them again.
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
            hint = 'Make it again, or export the rows: sereno archive export';
    end if;
    select string_agg(name, ', ') into lost from unnest(names) as name
    where name <> all(without) and not exists (select from pg_attribute where attrelid = target and attname = name and attnum > 0 and not attisdropped);
    if lost is not null or without && held.key_columns then
        raise exception '% no longer has what the archive has: %', held.source, coalesce(lost, array_to_string(held.key_columns, ', '))
            using errcode = 'object_not_in_prerequisite_state', hint = 'Add the columns again, or leave them out: --without COLUMN';
    end if;
    -- The type without its length: what does not fit any more is refused, and not cut off.
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

-- Rows of a file: an array of arrays of texts, in the order of `names`.
create function sereno.restore_rows(of_batch bigint, names text[], rows jsonb, until timestamptz, without text[],
    out matched bigint, out restored bigint, out present bigint)
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
begin
    execute sereno.restore_query(of_batch, names, without, 'jsonb_array_elements($1) as r', 'r ->> %1$s')
    into matched, restored, present using rows, until;
end $$;

-- What is wanted of a table that still holds its rows: so many of its pages, by the first part of the key or by time.
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

-- Rows of a table that still holds them.
create function sereno.restore_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamptz,
    to_at timestamptz, until timestamptz, without text[], out matched bigint, out restored bigint, out present bigint)
    language plpgsql set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
declare
    origin text := sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at);
    names text[];
begin
    if origin is null then
        raise exception 'batch % was dropped meanwhile', of_batch using errcode = 'object_not_in_prerequisite_state', hint = 'Say it again.';
    end if;
    select array_agg(attname::text order by attnum) into names from pg_attribute
    where attrelid = (select format('sereno_archive.%I', held_in)::regclass from sereno.archive_batches where id = of_batch)
      and attnum > 0 and not attisdropped;
    execute sereno.restore_query(of_batch, names, without, origin, 'h.%2$I') into matched, restored, present using null::text, until;
end $$;

-- How many there are.
create function sereno.count_held(of_batch bigint, first_block bigint, last_block bigint, numbers text[], from_at timestamptz,
    to_at timestamptz, out matched bigint)
    language plpgsql stable set timezone = 'UTC' as $$
begin
    execute 'select count(*) from ' || sereno.held_origin(of_batch, first_block, last_block, numbers, from_at, to_at) into matched;
end $$;

-- A part of a key as a value again, as an expression: what `archive_key` made a text of.
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

-- How a mark, `m`, finds its row, `t`: by the columns of the key, so that an index serves. What has a tab in it is not found.
create function sereno.mark_finds(target regclass, keys text[]) returns text
    language sql stable as $$
    select string_agg(format('t.%I = case when m.tabs = %s then %s end', name, cardinality(keys) - 1,
                             sereno.key_value(case when cardinality(keys) = 1 then 'm.key' else format('split_part(m.key, chr(9), %s)', place) end,
                                              atttypid)), ' and ' order by place)
    from unnest(keys) with ordinality as named (name, place)
    join pg_attribute on attrelid = target and attname = name and not attisdropped
    having count(*) = cardinality(keys)
$$;

-- The time of some marks of a kind is over, all of one batch: rows that are as they were archived leave, with what hangs on them;
-- they are still in the archive. Others lose their mark, and are archived again as any other row. Nothing when there are none.
-- Children go with their parents; the marks of those that are left over say nothing any more.
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
    -- Where a file of the batch is not sound, the row that came back may be the last one.
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

-- A mark is found by the text of its key: whoever moves rows writes it as whoever brings them back.
alter function sereno.archive_found(text, regclass, text[], text, text, integer)
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex';
alter function sereno.archive_rows(text, timestamptz, integer)
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex';
alter function sereno.archive_table(text, text, timestamptz, integer)
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex';
