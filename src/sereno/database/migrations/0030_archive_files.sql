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
-- owner, which must not run another role's code.
create function sereno.text_of(name text, of_type oid) returns text
    language sql stable as $$
    select case when sereno.has_own_cast(of_type) then format('case when %1$I is not null then format(''%%s'', %1$I) end', name)
                else format('%I::text', name) end
$$;

-- Expressions for the checksum of all columns of a batch, as a reader of its file computes it (`archive/checksum.py`). `columns`
-- are read in the order of the key; `digest` aggregates them, for 8,192 rows at a time: the SHA-256 of the SHA-256 of each column.
-- A column's values are joined once per page, because SHA-256 costs PostgreSQL 2 us a call, whatever the length. Numbers and
-- instants go in as the bytes that PostgreSQL sends, so no rounding and no text format comes in between. A long value is replaced
-- by its own SHA-256: a page of them might not fit into memory.
create function sereno.content_digest(of_batch bigint, out columns text, out digest text)
    language sql stable as $$
    select string_agg(format('%s as value_%s', expression, attnum), ', ' order by attnum),
           format('sha256(%s)', string_agg(case
               when send is not null then
                   format(case when attnotnull then 'sha256(string_agg(%s(value_%s), ''''))'
                               else 'sha256(string_agg(coalesce(%s(value_%s), ''\x1e''), ''''))' end, send, attnum)
               when atttypid = 'bytea'::regtype and is_native then
                   format('sha256(string_agg(case when octet_length(value_%1$s) > 2000 then convert_to(encode(sha256(value_%1$s), ''hex''), ''UTF8'') '
                          'else coalesce(value_%1$s, ''\x1e'') end, ''\x1f''))', attnum)
               else
                   format('sha256(convert_to(string_agg(case when octet_length(value_%1$s) > 2000 then encode(sha256(convert_to(value_%1$s, ''UTF8'')), ''hex'') '
                          'else coalesce(value_%1$s, E''\x1e'') end, E''\x1f''), ''UTF8''))', attnum)
               end, ' || ' order by attnum))
    from sereno.archive_batches
    join pg_attribute on attrelid = format('sereno_archive.%I', held_in)::regclass and attnum > 0 and not attisdropped
    cross join lateral (select sereno.is_native(pg_attribute, key_columns, as_texts)) as known (is_native)
    cross join lateral (select case
        when not is_native then sereno.text_of(attname, atttypid)
        -- With its blanks.
        when atttypid = 'bpchar'::regtype then format('textin(bpcharout(%I))', attname)
        else quote_ident(attname) end) as written (expression)
    left join (values ('int2', 'int2send'), ('int4', 'int4send'), ('int8', 'int8send'), ('float4', 'float4send'), ('float8', 'float8send'),
                      ('bool', 'boolsend'), ('date', 'date_send'), ('timestamp', 'timestamp_send'), ('timestamptz', 'timestamptz_send')
              ) as fixed (type_name, send) on is_native and atttypid = type_name::regtype
    where id = of_batch
$$;

-- What a file must hold, computed from the table itself: page by page through the index of its key, so memory does not grow with it.
create function sereno.measure_file(of_batch bigint, of_number integer, out rows bigint, out keys_hash text, out content_hash text,
    out first_id bigint, out last_id bigint, out from_at timestamptz, out to_at timestamptz)
    language plpgsql stable set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1
    set bytea_output = 'hex' set enable_sort = off set jit = off as $$
declare
    held sereno.archive_batches;
    file sereno.archive_files;
    table_name text;
    number_type boolean;
    content record;
    part text;
    from_page text;
    key_list text;
    from_list text;
begin
    select * into strict held from sereno.archive_batches where id = of_batch;
    select * into strict file from sereno.archive_files where batch_id = of_batch and number = of_number;
    table_name := format('sereno_archive.%I', held.held_in);
    number_type := exists (select from pg_attribute where attrelid = table_name::regclass and attname = held.key_columns[1]
                           and atttypid in ('int8'::regtype, 'int4'::regtype, 'int2'::regtype));
    content := sereno.content_digest(of_batch);
    part := sereno.part_of_table(file.first_block, file.last_block);
    select string_agg(quote_ident(name), ', ' order by place), string_agg(format('from_%s', place), ', ' order by place) into key_list, from_list
    from unnest(held.key_columns) with ordinality as named (name, place);
    -- From the first key of a page on, in the order of the index. Operators are found by name, which a user may have given, too:
    -- those of other types than PostgreSQL's own are not asked, at the price of an index scan from the first row.
    from_page := case when exists (select from pg_attribute where attrelid = table_name::regclass and attname = any(held.key_columns) and atttypid >= 16384)
                      then 'record_ge(row(%1$s), row(%2$s))' else '(%1$s) operator(pg_catalog.>=) (%2$s)' end;
    execute format(
        $measure$select coalesce(sum(counted), 0), encode(sha256(convert_to(coalesce(string_agg(keys, chr(10) order by place), ''), 'UTF8')), 'hex'),
            encode(sha256(coalesce(string_agg(digest, '' order by place), '')), 'hex'), min(low), max(high),
            case when count(*) > 0 then least(greatest(min(began), '0001-01-02'), '9999-12-30')::timestamptz end,
            case when count(*) > 0 then least(greatest(max(ended), '0001-01-02'), '9999-12-30')::timestamptz end
        from (
            select place, measured.* from (
                select row_number() over (order by %9$s) - 1, %9$s from %7$s%8$s
            ) as first (place, %10$s)
            cross join lateral (
                select count(*) as counted, string_agg(key, chr(10)) as keys, min(moment) as began, max(moment) as ended, %1$s, %2$s as digest
                from (
                    select %3$s as key, %4$I as moment, %5$I as first_key, %6$s from %7$s
                    where %11$s order by %9$s limit 8192
                ) as found
            ) as measured
            where place %% 8192 = 0
        ) as pages$measure$,
        case when number_type then 'min(first_key)::bigint as low, max(first_key)::bigint as high' else 'null::bigint as low, null::bigint as high' end,
        content.digest, sereno.archive_key(table_name::regclass, held.key_columns, '', held.as_texts), held.time_column, held.key_columns[1],
        content.columns, table_name, part, key_list, from_list,
        format(from_page, key_list, from_list) || replace(part, ' where ', ' and '))
    into rows, keys_hash, content_hash, first_id, last_id, from_at, to_at;
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
-- The pages of its files are all pages of the table, so each row is compared with the file that it is in.
create function sereno.drop_batch(of_batch bigint) returns boolean
    language plpgsql set lock_timeout = '1s' as $$
declare
    held sereno.archive_batches;
    filed record;
begin
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
