-- A batch becomes files: which rows each holds, what is counted before it is written, and the end of the batch.

-- Into which files a batch goes: about so many rows each, by the pages of its table. Once; whoever comes second finds them.
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
    -- What no calendar holds, such as infinity, would become another instant in a file: such a column is written as texts.
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

-- Which rows of its table a file holds. All of them are found without looking at pages: an index may give them in order, unsorted.
create function sereno.part_of_table(first_block bigint, last_block bigint) returns text
    language sql immutable as $$
    select case when first_block = 0 and last_block = 4294967294 then ''
                else format(' where ctid >= ''(%s,0)''::tid and ctid < ''(%s,0)''::tid', first_block, last_block) end
$$;

-- Whether a column of a batch is written to files as it is, because Parquet knows its type; all others are written as texts. So
-- are the parts of a key, where a reader of the file might write them otherwise than `archive_key` does.
create function sereno.is_native(of_column pg_attribute, key_columns text[], as_texts text[]) returns boolean
    language sql immutable as $$
    select (of_column).attname <> all(as_texts) and (
        (of_column).atttypid = any('{int2, int4, int8, text, varchar, timestamptz, timestamp, date}'::regtype[])
        or ((of_column).attname <> all(key_columns) and (of_column).atttypid = any('{bool, float4, float8, bpchar, bytea}'::regtype[])))
$$;

-- An expression: a column as a text. A type with a cast of its own is what its output function writes: a batch is dropped by its
-- owner, who must not run what somebody else has written.
create function sereno.text_of(name text, of_type oid) returns text
    language sql stable as $$
    select case when sereno.has_own_cast(of_type) then format('case when %1$I is not null then format(''%%s'', %1$I) end', name)
                else format('%I::text', name) end
$$;

-- An expression: the checksum of a row of a batch with all of its columns, as a reader of its file makes it from what the file
-- holds. Eight bytes of the SHA-256 of one text, as a number; added up, the order of rows does not matter. Instants and floats
-- go in by their bytes, so that no rounding and no way of writing them comes in between. An expression and no function of a row:
-- PostgreSQL would not inline it, and a call costs half as much as all the rest.
create function sereno.row_checksum(of_batch bigint) returns text
    language sql stable as $$
    select format('(''x'' || encode(substr(sha256(convert_to(array_to_string(array[%s], E''\x1f'', E''\x1e''), ''UTF8'')), 1, 8), ''hex''))::bit(64)::bigint',
        string_agg(case
            when not sereno.is_native(pg_attribute, key_columns, as_texts) then sereno.text_of(attname, atttypid)
            when atttypid = 'timestamptz'::regtype then format('encode(timestamptz_send(%I), ''hex'')', attname)
            when atttypid = 'timestamp'::regtype then format('encode(timestamp_send(%I), ''hex'')', attname)
            when atttypid = 'date'::regtype then format('(%I - date ''1970-01-01'')::text', attname)
            when atttypid = 'float8'::regtype then format('encode(float8send(%I), ''hex'')', attname)
            when atttypid = 'float4'::regtype then format('encode(float4send(%I), ''hex'')', attname)
            when atttypid = 'bytea'::regtype then format('encode(%I, ''hex'')', attname)
            -- With its blanks.
            when atttypid = 'bpchar'::regtype then format('textin(bpcharout(%I))', attname)
            else format('%I::text', attname) end, ', ' order by attnum))
    from sereno.archive_batches
    join pg_attribute on attrelid = format('sereno_archive.%I', held_in)::regclass and attnum > 0 and not attisdropped
    where id = of_batch
$$;

-- What a file must hold, counted from the table itself.
create function sereno.measure_file(of_batch bigint, of_number integer, out rows bigint, out keys_hash text, out keys_sum numeric,
    out content_sum numeric, out first_id bigint, out last_id bigint, out from_at timestamptz, out to_at timestamptz)
    language plpgsql stable set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' as $$
declare
    held sereno.archive_batches;
    file sereno.archive_files;
    table_name text;
    number_type boolean;
begin
    select * into strict held from sereno.archive_batches where id = of_batch;
    select * into strict file from sereno.archive_files where batch_id = of_batch and number = of_number;
    table_name := format('sereno_archive.%I', held.held_in);
    number_type := exists (select from pg_attribute where attrelid = table_name::regclass and attname = held.key_columns[1]
                           and atttypid in ('int8'::regtype, 'int4'::regtype, 'int2'::regtype));
    execute format(
        $measure$select count(*), encode(sha256(convert_to(coalesce(string_agg(key, chr(10) order by %1$s), ''), 'UTF8')), 'hex'),
            coalesce(sum(hashtextextended(key, 0)), 0), coalesce(sum(content), 0), %2$s,
            case when count(*) > 0 then least(greatest(min(moment), '0001-01-02'), '9999-12-30')::timestamptz end,
            case when count(*) > 0 then least(greatest(max(moment), '0001-01-02'), '9999-12-30')::timestamptz end
        from (select %3$s, %4$I, %8$s, %5$s from %6$s%7$s) as found (key, moment, content, %1$s)$measure$,
        (select string_agg(format('part_%s', place), ', ' order by place) from generate_subscripts(held.key_columns, 1) as place),
        case when number_type then 'min(part_1)::bigint, max(part_1)::bigint' else 'null, null' end,
        sereno.archive_key(table_name::regclass, held.key_columns, '', held.as_texts), held.time_column,
        (select string_agg(quote_ident(name), ', ' order by place) from unnest(held.key_columns) with ordinality as named (name, place)),
        table_name, sereno.part_of_table(file.first_block, file.last_block), sereno.row_checksum(of_batch))
    into rows, keys_hash, keys_sum, content_sum, first_id, last_id, from_at, to_at;
end $$;

-- The query whose answer is a file: sorted by the key, types that Parquet knows as they are, all others as texts.
create function sereno.file_query(of_batch bigint, of_number integer, out query text, out rising text[])
    language sql stable as $$
    select format('select %s from sereno_archive.%I as held%s order by %s',
                  string_agg(case when is_native then quote_ident(attname) else format('%s as %I', sereno.text_of(attname, atttypid), attname) end, ', ' order by attnum),
                  held_in, sereno.part_of_table(first_block, last_block),
                  (select string_agg(format('held.%I', name), ', ' order by place) from unnest(key_columns) with ordinality as named (name, place))),
           coalesce(array_agg(attname::text order by attnum) filter (where is_native and (atttypid in ('timestamptz'::regtype, 'timestamp'::regtype)
               or (attname = any(key_columns) and atttypid in ('int4'::regtype, 'int8'::regtype)))), '{}')
    from sereno.archive_batches
    join sereno.archive_files on batch_id = id and number = of_number
    join pg_attribute on attrelid = format('sereno_archive.%I', held_in)::regclass and attnum > 0 and not attisdropped
    cross join lateral (select sereno.is_native(pg_attribute, key_columns, as_texts)) as known (is_native)
    where id = of_batch
    group by held_in, first_block, last_block, key_columns
$$;

-- The end of a batch: its grace is over, every file was read back and verified, and together they hold every row of the table.
create function sereno.drop_batch(of_batch bigint) returns boolean
    language plpgsql set lock_timeout = '1s' set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres'
    set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
    held sereno.archive_batches;
    filed record;
    counted bigint;
    summed numeric;
    contents numeric;
begin
    select * into held from sereno.archive_batches where id = of_batch for update;
    if held.id is null or held.dropped_at is not null or not held.children_moved
       or held.drop_eligible_at is null or held.drop_eligible_at > sereno.now() then
        return false;
    end if;
    select sum(rows) as rows, sum(keys_sum) as keys_sum, sum(content_sum) as content_sum, bool_and(verified_at is not null and failed_at is null) as sound into filed
    from sereno.archive_files where batch_id = of_batch;
    execute format('lock table sereno_archive.%I in access exclusive mode', held.held_in);
    execute format('select count(*), coalesce(sum(hashtextextended(%s, 0)), 0), coalesce(sum(%s), 0) from sereno_archive.%I',
                   sereno.archive_key(format('sereno_archive.%I', held.held_in)::regclass, held.key_columns, '', held.as_texts),
                   sereno.row_checksum(of_batch), held.held_in)
    into counted, summed, contents;
    if filed.sound is not true or filed.rows is distinct from counted or filed.keys_sum is distinct from summed
       or filed.content_sum is distinct from contents then
        raise exception 'the files of batch % do not hold the rows of %: nothing is dropped', of_batch, held.held_in
            using errcode = 'data_exception', hint = format('Files: %s rows; table: %s rows. Run: sereno archive verify', coalesce(filed.rows, 0), counted);
    end if;
    execute format('drop table sereno_archive.%I', held.held_in);
    update sereno.archive_batches set dropped_at = sereno.now(), held_in = null, error = null where id = of_batch;
    return true;
end $$;
