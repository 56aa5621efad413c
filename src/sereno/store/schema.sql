-- The sum of the migrations, as pg_dump sees it. Written by `make schema`; read it, do not load it.

CREATE SCHEMA sereno;

CREATE FUNCTION sereno.added(integer[], integer[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE STRICT
    AS $_$
    select array_agg(coalesce(mine, 0) + coalesce(theirs, 0) order by place)
    from unnest($1, $2) with ordinality as both_of(mine, theirs, place)
    $_$;

CREATE FUNCTION sereno.check_event(type text, payload jsonb, named text[], at timestamp with time zone, ttl interval, said jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
    wrong  text;
    hint   text;
begin
    if said is null then
        wrong := format('no event "%s" is declared: start a worker of the application that declares it once', type);
        hint := 'Those that are known: select name from sereno.event_types';
    elsif payload is null or jsonb_typeof(payload) <> 'object' then
        wrong := format('event %s: the payload must be an object with named fields, not %s', type,
                        coalesce(left(payload::text, 60), 'null'));
        hint := 'For one without any, write ''{}''.';
    elsif octet_length(payload::text) > 65536 then
        wrong := format('event %s: %s bytes of payload, the limit is 65536', type, octet_length(payload::text));
        hint := 'Store it elsewhere, and tell where it is.';
    elsif cardinality(named) = 0 then
        wrong := format('event %s: "to" is empty, and nobody would be told', type);
        hint := 'Leave it out to tell all who want it.';
    elsif cardinality(named) > 10000 then
        wrong := format('event %s: %s recipients by name, at most 10000', type, cardinality(named));
        hint := 'Leave "to" out, and let preferences say who wants it.';
    elsif array_position(named, null) is not null then
        wrong := format('event %s: a key in "to" is null', type);
        hint := 'Leave it out, or name somebody.';
    elsif at not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then
        wrong := format('event %s: at is out of range: 1900 to 9999', type);
        hint := 'Leave it out for now.';
    elsif ttl < interval '0' or not isfinite(ttl) then
        wrong := format('event %s: ttl must be finite and not negative', type);
        hint := 'Leave it out for what the code says.';
    else
        perform sereno.check_text('to', name) from unnest(named) as name;
        return;
    end if;
    raise exception '%', wrong using errcode = 'invalid_parameter_value', hint = hint;
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
    select (array_agg(p.wanted order by weight desc) filter (where p.wanted is not null))[1],
           (array_agg(p.condition order by weight desc) filter (where p.condition is not null))[1],
           (array_agg(p.quiet order by weight desc) filter (where p.quiet is not null))[1]
    from (select * from sereno.preferences where recipient_id = of_recipient
          union all
          select * from sereno.preferences where recipient_id is null and tenant = of_tenant) as p
    where (p.category is null or p.category = of_category) and (p.event is null or p.event = of_event)
      and (p.channel is null or p.channel = by_channel)
    $$;

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
    -- A comparison would open a list in the list, and each test might find another element there.
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

CREATE FUNCTION sereno.digest_key(type text, field text, payload jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    value jsonb := payload -> field;
begin
    if field is null then
        return type;
    elsif jsonb_typeof(value) in ('array', 'object') then
        raise exception 'events of type % are gathered by "%", and that is an % here', type, field, jsonb_typeof(value)
            using errcode = 'invalid_parameter_value', hint = 'It is a text, a number, true, false or null.';
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
    -- All digits that count, and how many of them stand before the point.
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
    execute format('delete from sereno.attempts where job_id in (select id from sereno.%I)', name);
    execute format('drop table sereno.%I', name);
end $_$;

CREATE FUNCTION sereno.due_gates(queues text[], moment timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    select due.id
    from (select id, limit_name from sereno.gates where look_at <= moment order by look_at limit 5000) as due
    left join sereno.limits on limits.name = due.limit_name
    where (limits.queue is null or limits.queue = any(queues))
      and ((select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
           or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null)
    limit 100
    $$;

CREATE FUNCTION sereno.enqueue(task text, args jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'default'::text, priority integer DEFAULT 5, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tenant text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tags text[] DEFAULT NULL::text[], trace text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz := sereno.now();
    due    timestamptz := coalesce(run_at, moment);
    made   bigint;
    keys   jsonb := sereno.keys_for(task, queue, tenant, args);
begin
    if unique_key is not null then
        return (sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
            'task', task, 'args', args, 'queue', queue, 'priority', priority, 'run_at', run_at, 'tenant', tenant,
            'unique_key', unique_key, 'expires_at', expires_at, 'tags', tags, 'trace', trace,
            'keys', keys))) -> 0 ->> 'id')::bigint;
    end if;
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, created_at,
                             keys, lane, order_id, state, ready_seq)
    values (enqueue.task, enqueue.args, enqueue.queue, enqueue.priority, due, enqueue.tenant, enqueue.expires_at,
            enqueue.tags, enqueue.trace, moment, keys,
            case when keys is not null then sereno.lane_of(enqueue.queue, keys) end,
            case when keys is not null then sereno.order_of(enqueue.queue, keys) end,
            case when due <= moment then 'ready' else 'scheduled' end,
            case when due <= moment then nextval('sereno.ready_seq') end)
    returning id into made;
    perform sereno.tell(enqueue.queue, extract(epoch from due - moment));
    return made;
end $$;

CREATE FUNCTION sereno.enqueue_keyed(jobs jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
    moment   timestamptz := sereno.now();
    wanted   record;
    due      timestamptz;
    new_id   bigint;
    found_id bigint;
    told_queue text;
    answers  jsonb[] := '{}';
begin
    for wanted in
        select * from rows from (jsonb_to_recordset(jobs) as (
            task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
            tenant text, expires_at timestamptz, tags text[], trace text, unique_key text, on_conflict text,
            unique_for double precision, unique_forever boolean, keys jsonb, by_rules boolean)) with ordinality
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
                    -- Its time ran out and it was swept away in between: try once more.
                    continue when found_id is null;
                end if;
            end if;
            if found_id is null or found_id = new_id then
                insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, expires_at, tags, trace,
                                         created_at, unique_key, keys, lane, order_id, state, ready_seq)
                values (new_id, wanted.task, coalesce(wanted.args, '{}'), coalesce(wanted.queue, 'default'),
                        coalesce(wanted.priority, 5), due, wanted.tenant, wanted.expires_at, wanted.tags,
                        wanted.trace, moment, wanted.unique_key, wanted.keys,
                        case when wanted.keys is not null
                             then sereno.lane_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when wanted.keys is not null
                             then sereno.order_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when due <= moment then 'ready' else 'scheduled' end,
                        case when due <= moment then nextval('sereno.ready_seq') end)
                on conflict (task, unique_key, tenant) where unique_key is not null do nothing
                returning id into found_id;
                if found_id = new_id then
                    perform sereno.tell(coalesce(wanted.queue, 'default'), extract(epoch from due - moment));
                    answers[wanted.ordinality] := jsonb_build_object('id', new_id, 'created', true);
                    exit;
                end if;
                -- A live job has the key. While it waits, lock it, so that it runs after we commit and sees what we did.
                -- Never lock a running one: its worker would wait for us, and with it everything that it settles.
                select id into found_id from sereno.jobs live
                where live.task = wanted.task and live.unique_key = wanted.unique_key
                  and live.tenant is not distinct from wanted.tenant and live.state in ('scheduled', 'ready')
                for update;
                if found_id is null then
                    select id into found_id from sereno.jobs live
                    where live.task = wanted.task and live.unique_key = wanted.unique_key
                      and live.tenant is not distinct from wanted.tenant;
                    -- It finished in between: the key is free again, try once more.
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
                    keys = wanted.keys,
                    lane = case when wanted.keys is not null then sereno.lane_of(jobs.queue, wanted.keys) end,
                    order_id = case when wanted.keys is not null then sereno.order_of(jobs.queue, wanted.keys) end
                where id = found_id and state in ('scheduled', 'ready')
                returning queue into told_queue;
                if found then
                    perform sereno.tell(told_queue, extract(epoch from due - moment));
                end if;
            end if;
            answers[wanted.ordinality] := jsonb_build_object('id', found_id, 'created', false);
            exit;
        end loop;
    end loop;
    return to_jsonb(answers);
end $$;

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

CREATE FUNCTION sereno.finite(seconds double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN ((seconds > '-Infinity'::double precision) AND (seconds < 'Infinity'::double precision)) THEN seconds
             ELSE NULL::double precision
         END AS "case";
END;

CREATE FUNCTION sereno.gate_of(limit_name text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select hashtextextended(jsonb_build_array(limit_name, key)::text, 2) $$;

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

CREATE FUNCTION sereno.keeps_rule(before jsonb, after jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((before - 'spread'::text) = (after - 'spread'::text));
END;

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

CREATE FUNCTION sereno.look_again(names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    left_over integer;
begin
    for attempt in 1..20 loop
        with waited as materialized (
            select id from sereno.gates
            where limit_name = any(names) and look_at is not null and (attempt = 1 or look_at > sereno.now())
        ),
        locked as materialized (
            select id from sereno.gates where id = any(array(select id from waited)) order by id for update skip locked
        ),
        looked as (
            update sereno.gates set look_at = sereno.now() where id = any(array(select id from locked)) returning id
        )
        select (select count(*) from waited) - (select count(*) from looked) into left_over;
        exit when left_over = 0;
        perform pg_sleep(0.01);
    end loop;
end $$;

CREATE FUNCTION sereno.make_day_partition(parent text, moment text, day date) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $$
declare
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    -- Two workers may get here together.
    perform pg_advisory_xact_lock(hashtext('sereno.' || parent));
    if to_regclass(format('sereno.%I', name)) is not null then
        return false;
    end if;
    execute format('create table sereno.%I (like sereno.%I including all)', name, parent);
    -- What the default partition took meanwhile moves in first; attaching would be refused otherwise.
    execute format('with moved as (delete from sereno.%I where %I >= %L and %I < %L returning *) '
                   'insert into sereno.%I select * from moved',
                   parent || '_default', moment, from_at, moment, to_at, name);
    execute format('alter table sereno.%I attach partition sereno.%I for values from (%L) to (%L)',
                   parent, name, from_at, to_at);
    return true;
end $$;

CREATE FUNCTION sereno.make_gates(lane_ids bigint[], queues text[]) RETURNS void
    LANGUAGE sql
    AS $$
    insert into sereno.gates (id, limit_name, key)
    select distinct on (1) * from (
        select sereno.gate_of(item ->> 0, item ->> 1), item ->> 0, item ->> 1
        from sereno.lanes, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item where id = any(lane_ids)
        union all
        select order_id, null, keys ->> 'order' from sereno.lanes where id = any(lane_ids) and order_id is not null
        union all
        select sereno.gate_of(name, ''), name, '' from sereno.limits where queue = any(queues)) as gate(id)
    where (select true from sereno.gates where gates.id = gate.id) is null
    order by 1
    on conflict do nothing
    $$;

CREATE FUNCTION sereno.make_history_partition(day date) RETURNS boolean
    LANGUAGE sql
    AS $$ select sereno.make_day_partition('history_done', 'finished_at', day) $$;

CREATE FUNCTION sereno.micros(at timestamp with time zone) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((EXTRACT(epoch FROM at) * (1000000)::numeric))::bigint AS int8;
END;

CREATE FUNCTION sereno.notify(type text, payload jsonb, "to" text[] DEFAULT NULL::text[], subject text DEFAULT NULL::text, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl interval DEFAULT NULL::interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    said      jsonb := (select definition from sereno.event_types where name = notify.type);
    due       timestamptz := coalesce(at, sereno.now());
    seconds   double precision := coalesce(extract(epoch from ttl), (said ->> 'ttl')::double precision);
    -- Without a name of its own it is told apart from every other.
    own_key   text := case when subject is null and key is null then replace(gen_random_uuid()::text, '-', '') else key end;
    gathered  text;
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, said);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant)) as given(name, value);
    if said ? 'digest' then
        gathered := sereno.digest_key(type, said -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, said ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(said -> 'channels')),
                (select array_agg(distinct name collate "C") from unnest("to") as named(name)),
                coalesce((said ->> 'critical')::boolean, false), coalesce((said ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), said ->> 'note', said -> 'steps',
                (said -> 'throttle' ->> 'most')::integer, (said -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (said -> 'digest' ->> 'seconds')::double precision end, true)
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- The name of the task is the same in every schema, and this file is not.
            perform sereno.enqueue('sereno' || '.fan_out', jsonb_build_object('event', number), queue => 'notifications',
                                   run_at => at, tenant => tenant);
            return number;
        end if;
        select id into number from sereno.events e
        where e.type = notify.type and e.tenant = coalesce(notify.tenant, '')
          and e.subject is not distinct from notify.subject and e.key is not distinct from own_key;
        -- Deleted in between: the name is free again, try once more.
        exit when number is not null;
    end loop;
    return number;
end $$;

CREATE TABLE sereno.clock (
    one_row boolean DEFAULT true NOT NULL,
    ahead interval NOT NULL,
    CONSTRAINT clock_one_row_check CHECK (one_row)
);

CREATE FUNCTION sereno.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (now() + COALESCE(( SELECT clock.ahead
            FROM sereno.clock), '00:00:00'::interval));
END;

CREATE FUNCTION sereno.open_lanes(look_from bigint) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
    answer json;
begin
    if not pg_try_advisory_xact_lock(hashtext('sereno: lanes are opened'), 'sereno.lane_wakes'::regclass::oid::integer) then
        return json_build_array(0, null, 1);
    end if;
    with woken as materialized (
        select id, lane, queue, priority, ready_seq from sereno.lane_wakes
        where id >= look_from order by id limit 5000
    ),
    wanted as materialized (
        select lane, min(queue) as queue, min(priority) as priority, min(ready_seq) as ready_seq,
               row_number() over () as place
        from woken group by lane
    ),
    known as materialized (select id from sereno.lanes where id = any(array(select lane from wanted))),
    locked as materialized (
        select id from sereno.lanes where id = any(array(select id from known)) order by id for update skip locked
    ),
    -- Where a fair key starts that comes late: at the turn of whoever is next.
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
            waits_for = case when has_work and order_id is null then waits_for end,
            band = case when fair is not null then band when has_work then least(band, wanted.priority)
                        else wanted.priority end,
            turn = case when has_work then lanes.turn when fair is not null then greatest(lanes.turn, pace.turn)
                        else sereno.micros(sereno.now()) + wanted.place end,
            floor_priority = least(floor_priority, wanted.priority),
            floor_seq = case when floor_priority < wanted.priority then floor_seq
                             when floor_priority = wanted.priority then least(floor_seq, wanted.ready_seq)
                             else wanted.ready_seq end
        from wanted join pace on pace.queue = wanted.queue
        where lanes.id = any(array(select id from locked)) and lanes.id = wanted.lane
          and (not has_work or (waits_for is not null and order_id is not null) or wanted.priority < band
               or (wanted.priority, wanted.ready_seq) < (floor_priority, floor_seq))
    ),
    fresh as materialized (
        select wanted.*, job.keys
        from wanted left join lateral (
            select keys from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
            limit 1) as job on true
        where wanted.lane not in (select id from known)
    ),
    gate as materialized (
        select lane, array_agg(gate) as gates, array_agg(units) as units
        from (select lane, sereno.gate_of(item ->> 0, item ->> 1) as gate, (item ->> 2)::integer as units
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
    -- What is there is left alone: an insert would wait for a claim that is changing it.
    gates_made as (
        insert into sereno.gates (id, limit_name, key)
        select distinct on (gate) * from (
            select sereno.gate_of(item ->> 0, item ->> 1) as gate, item ->> 0, item ->> 1
            from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
            union all
            select sereno.order_of(queue, keys), null, keys ->> 'order' from fresh where keys ? 'order') as each
        where gate not in (select id from sereno.gates where id = any(array(select unnest(gates) from gate)))
        order by gate
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
        insert into sereno.lanes (id, queue, keys, gates, units, order_id, fair, band, turn)
        select paced.lane, queue, keys, coalesce(gates, '{}'), coalesce(units, '{}'), sereno.order_of(queue, keys), fair,
               case when fair is null then priority else 10 end,
               case when fair is null then sereno.micros(sereno.now()) + place else base + (number - 1) / weight end
        from paced left join gate on gate.lane = paced.lane
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
    into answer;
    return answer;
end $$;

CREATE FUNCTION sereno.order_of(queue text, keys jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        select case when keys ? 'order' then hashtextextended(jsonb_build_array(queue, keys ->> 'order')::text, 3) end
    $$;

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

CREATE FUNCTION sereno.put_preference(recipient text, tenant text DEFAULT NULL::text, category text DEFAULT NULL::text, event text DEFAULT NULL::text, channel text DEFAULT NULL::text, wanted boolean DEFAULT NULL::boolean, filter jsonb DEFAULT NULL::jsonb, quiet jsonb DEFAULT NULL::jsonb, clear text[] DEFAULT '{}'::text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    given   text[] := array_remove(array[case when wanted is not null then 'wanted' end,
                                         case when filter is not null then 'filter' end,
                                         case when quiet is not null then 'quiet' end], null);
    number  bigint;
begin
    perform sereno.check_text(checked.name, checked.value)
    from (values ('recipient', recipient), ('tenant', tenant), ('category', category), ('event', event), ('channel', channel))
         as checked(name, value);
    clear := coalesce(clear, '{}');
    if not clear <@ array['wanted', 'filter', 'quiet'] or clear && given then
        raise exception 'clear names what is taken back, and not given: wanted, filter, quiet; not %', clear
            using errcode = 'invalid_parameter_value', hint = 'Such as clear => array[''quiet''].';
    end if;
    insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted, filter, condition, quiet)
    values (coalesce(put_preference.tenant, ''), case when recipient is not null then sereno.recipient_id(recipient, tenant) end,
            put_preference.category, put_preference.event, put_preference.channel, put_preference.wanted, put_preference.filter,
            sereno.condition(put_preference.filter), sereno.quiet_spans(put_preference.quiet))
    on conflict on constraint preferences_once do update
    set wanted = case when 'wanted' <> all(clear) then coalesce(excluded.wanted, p.wanted) end,
        filter = case when 'filter' <> all(clear) then coalesce(excluded.filter, p.filter) end,
        condition = case when 'filter' <> all(clear) then coalesce(excluded.condition, p.condition) end,
        quiet = case when 'quiet' <> all(clear) then coalesce(excluded.quiet, p.quiet) end,
        changed_at = sereno.now()
    returning id into number;
    delete from sereno.preferences as p
    where p.id = number and p.wanted is null and p.filter is null and p.quiet is null;
    return case when not found then number end;
end $$;

CREATE FUNCTION sereno.put_recipient(key text, tenant text DEFAULT NULL::text, locale text DEFAULT NULL::text, zone text DEFAULT NULL::text, data jsonb DEFAULT NULL::jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    number bigint;
begin
    if key is null then
        raise exception 'a recipient needs a key' using errcode = 'invalid_parameter_value',
            hint = 'It is the name that your application knows them by, such as user:7.';
    elsif not sereno.is_zone(zone) then
        raise exception 'there is no time zone "%"', left(zone, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is a name such as Europe/Riga: select name from pg_timezone_names';
    elsif jsonb_typeof(data) <> 'object' then
        raise exception 'data of recipient % must be an object', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"name": "Ada"}; leave it out if there is none.';
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
    kept   jsonb := '[]';
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
        kept := kept || jsonb_build_object('start', times[1], 'end', times[2], 'days', days);
        -- In minutes of the week; what goes beyond its end is at its beginning.
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
    return kept;
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

CREATE FUNCTION sereno.recipient_id(key text, tenant text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare
    number bigint := (select id from sereno.recipients r
                      where r.tenant = coalesce(recipient_id.tenant, '') and r.key = recipient_id.key);
begin
    if number is null then
        raise exception 'there is no recipient "%"', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Make them first: select sereno.put_recipient(…)';
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

CREATE FUNCTION sereno.returns_to_work(state text, note text, wanted text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((state = 'disabled'::text) AND (note = 'left the code'::text) AND (wanted = 'enabled'::text));
END;

CREATE FUNCTION sereno.schedule(key text, task text, args jsonb DEFAULT '{}'::jsonb, cron text DEFAULT NULL::text, every interval DEFAULT NULL::interval, at timestamp with time zone DEFAULT NULL::timestamp with time zone, daily text DEFAULT NULL::text, tz text DEFAULT 'UTC'::text, queue text DEFAULT 'default'::text, priority integer DEFAULT 5, tenant text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, missed text DEFAULT 'latest'::text, overlap text DEFAULT 'skip'::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz := sereno.now();
    rule jsonb;
    found_id bigint;
begin
    if num_nonnulls(cron, every, at, daily) <> 1 then
        raise exception 'schedule %: say when with exactly one of cron, every, at and daily', key
            using errcode = 'invalid_parameter_value';
    end if;
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
            moment, current_user)
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
                      and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment),
            next_run_at = case
                when s.state in ('paused', 'disabled') then null
                -- Said again, or asleep for a while: as it was.
                when s.state = 'enabled'
                     and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment) then s.next_run_at
                else moment end
        where (s.task, s.args, s.queue, s.priority, s.tenant, s.unique_key, s.missed, s.overlap)
              is distinct from (excluded.task, excluded.args, excluded.queue, excluded.priority, excluded.tenant,
                                excluded.unique_key, excluded.missed, excluded.overlap)
           or not sereno.keeps_rule(s.rule, excluded.rule)
    returning id into found_id;
    if found_id is null then
        -- Said again, and nothing is new.
        select id into found_id from sereno.schedules s where s.key = schedule.key;
    else
        perform sereno.wake_scheduler(moment);
    end if;
    return found_id;
end $$;

CREATE FUNCTION sereno.slots_taken(held bigint[]) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    select coalesce(sum(taken), 0)::bigint
    from (select least(-min(number) filter (where number < 0), count(jobs.id)) as taken
          from (select number, count(*) filter (where number < 0) over (order by place) as party
                from unnest(held) with ordinality as list(number, place)) as each
          left join sereno.jobs on jobs.id = number and state = 'running'
          group by party) as party
    $$;

CREATE FUNCTION sereno.span(micros bigint) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((micros)::double precision * '00:00:00.000001'::interval);
END;

CREATE FUNCTION sereno.take_batches(of_purpose text, by_channel text, of_account text, by_job bigint, most integer, again interval DEFAULT NULL::interval) RETURNS TABLE(batch bigint, ids bigint[])
    LANGUAGE plpgsql
    AS $$
declare
    waiting cursor for
        select b.id, b.deliveries, b.due_at, b.ends_at, b.gathers from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id
        for update skip locked;
    found_one record;
    room integer := most;
    waited boolean := false;
    taken bigint[] := '{}';
begin
    if exists (select from sereno.channel_pauses p where p.channel = by_channel and p.account in ('', of_account)) then
        return;
    end if;
    -- What is gathered is looked for by one at a time: two would make two messages of it.
    if exists (select from sereno.batches b where b.gathers and b.job_id is null and b.channel = by_channel
                 and b.account = of_account and b.due_at <= sereno.now()) then
        perform pg_advisory_xact_lock(hashtext('sereno gathers by ' || by_channel), hashtext(of_account));
    end if;
    open waiting;
    while room > 0 loop
        fetch waiting into found_one;
        if not found then
            -- What is due is in the hands of others, who may leave some of it: that is waited for once.
            exit when room < most or waited;
            waited := true;
            close waiting;
            perform from sereno.batches b
            where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.job_id is null
              and b.due_at <= sereno.now()
            order by b.due_at, b.id limit 1 for update;
            open waiting;
            continue;
        end if;
        batch := found_one.id;
        ids := found_one.deliveries[:room];
        if cardinality(found_one.deliveries) > room then
            update sereno.batches b set deliveries = found_one.deliveries[room + 1:] where b.id = found_one.id;
            insert into sereno.batches (purpose, channel, account, due_at, ends_at, gathers, deliveries)
            values (of_purpose, by_channel, of_account, found_one.due_at, found_one.ends_at, found_one.gathers, ids)
            returning id into batch;
        end if;
        taken := taken || batch;
        room := room - cardinality(ids);
        return next;
    end loop;
    close waiting;
    update sereno.batches b
    set job_id = case when again is null then by_job end, taken_at = sereno.now(),
        due_at = case when again is null then b.due_at else sereno.now() + again end
    where b.id = any(taken);
end $$;

CREATE FUNCTION sereno.take_lanes(asked jsonb, freed jsonb) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
    moment       timestamptz := sereno.now();
    open_to      text[];
    own          json;
    free         bigint[];
    free_counts  integer[];
    free_list    json;
    missed       json;
    elsewhere    json;
    lane_ids     bigint[];
    lane_list    json;
    gate_ids     bigint[];
    gate_list    json;
    locked_ids   bigint[];
begin
    select array_agg(wanted.queue) into open_to
    from jsonb_to_recordset(asked) as wanted(queue text)
    where wanted.queue <> all(array(select name from sereno.pauses where kind = 'queue'));
    select json_object_agg(queue, json_build_array(to_json(gates), has_plain)) into own
    from (select limits.queue, array_agg(sereno.gate_of(name, '')) as gates,
                 (select true
                  from jsonb_to_recordset(asked) as wanted(queue text, floors jsonb)
                  cross join lateral jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint)
                  cross join lateral (select from sereno.jobs
                                      where state = 'ready' and lane is null and jobs.queue = wanted.queue
                                        and jobs.priority = step.priority and jobs.ready_seq >= step.floor limit 1) as job
                  where wanted.queue = limits.queue limit 1) is not null as has_plain
          from sereno.limits where limits.queue = any(open_to) group by limits.queue) as each;

    with due as materialized (select id from sereno.due_gates(open_to, moment) as id),
    told as materialized (
        select * from jsonb_to_recordset(freed) as f(gate bigint, most integer)
        where (select true from sereno.lanes where has_work and waits_for = gate limit 1)
    ),
    locked as materialized (
        select id, limit_name from sereno.gates
        where id = any(array(select id from due union select gate from told)) order by id for update skip locked
    )
    select array_agg(locked.id),
           array_agg(greatest(told.most, case when due.id is null then 0 when kind = 'rate' then 100 else 10 end)),
           json_agg(json_build_array(locked.id, due.id is not null)),
           (select json_agg(gate) from told where gate not in (select id from locked)),
           (select json_agg(gate) from told
            where (select true from sereno.lanes
                   where has_work and waits_for = gate and lanes.queue <> all(open_to) limit 1))
    into free, free_counts, free_list, missed, elsewhere
    from locked left join told on told.gate = locked.id left join due on due.id = locked.id
    left join sereno.limits on limits.name = limit_name;

    with unfair as materialized (
        select lane.*
        from jsonb_to_recordset(asked) as wanted(queue text, lanes integer, bands jsonb)
        cross join lateral (
            select candidate.*
            from jsonb_to_recordset(wanted.bands) as step(band smallint, after double precision)
            cross join lateral (
                (select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn > step.after
                 order by lanes.turn limit wanted.lanes)
                union all
                (select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
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
        from jsonb_to_recordset(asked) as wanted(queue text, room integer)
        cross join lateral (
            select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
                   null::bigint as behind
            from sereno.lanes
            where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = 10
            order by lanes.turn limit wanted.room for update skip locked
        ) as lane
        where wanted.queue = any(open_to)
    ),
    waiting as materialized (
        select lane.*
        from unnest(free, free_counts) as gate(id, most) cross join lateral (
            select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq, gate.id as behind
            from sereno.lanes
            where has_work and waits_for = gate.id and queue = any(open_to)
            order by turn limit gate.most
        ) as lane
    ),
    every as materialized (select * from unfair union all select * from fair union all select * from waiting)
    select array_agg(id),
           json_agg(json_build_array(id, queue, to_json(gates), to_json(units), order_id, turn, floor_priority, floor_seq,
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
           array(select distinct unnest(gates) from every)
    into lane_ids, lane_list, gate_ids from every;

    gate_ids := array(select unnest(gate_ids)
                      union select sereno.gate_of(name, '') from sereno.limits where queue = any(open_to)
                      except select unnest(free));
    with locked as materialized (
        select id from sereno.gates where id = any(gate_ids) order by id for update skip locked
    )
    select array_agg(id) into locked_ids from locked;

    select json_agg(json_build_array(
               gates.id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end,
               case when limit_name is null then 1 else slots end, units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from moment - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - moment),
                        case when kind = 'rate' then extract(epoch from look_at - moment) end, 0),
               to_json(held), looks, gates.xmin::text::bigint))
    into gate_list
    from sereno.gates left join sereno.limits on limits.name = limit_name
    where gates.id = any(free || locked_ids);

    return json_build_array(moment, sereno.micros(moment), coalesce(lane_list, '[]'), coalesce(gate_list, '[]'),
        coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'), coalesce(elsewhere, '[]'),
        coalesce(cardinality(locked_ids), 0) < cardinality(gate_ids)
            and exists (select unnest(gate_ids) except select id from sereno.gates where id = any(gate_ids)),
        (select extract(epoch from look_at - moment) from sereno.gates where look_at > moment order by look_at limit 1));
end $$;

CREATE FUNCTION sereno.tell(queue text, due_in double precision) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if due_in <= 10 and exists (select from sereno.sessions s where s.idle and s.queues ? tell.queue) then
        perform pg_notify('sereno.ready', case when due_in <= 0 then tell.queue else '' end);
    end if;
end $$;

CREATE FUNCTION sereno.tell_of_clock() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_notify('sereno.clock', '');
    return null;
end $$;

CREATE FUNCTION sereno.try_enqueue_keyed(jobs jsonb, patience double precision) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
    before text := current_setting('lock_timeout');
    answers jsonb;
begin
    perform set_config('lock_timeout', greatest(1, round(patience * 1000))::bigint::text, true);
    answers := sereno.enqueue_keyed(jobs);
    perform set_config('lock_timeout', before, true);
    return answers;
exception when lock_not_available then
    return null;
end $$;

CREATE FUNCTION sereno.unschedule(key text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    delete from sereno.schedules where schedules.key = unschedule.key;
    return found;
end $$;

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
    if due < sereno.now() + interval '10 seconds' and exists (select from sereno.leases where name = 'scheduler') then
        perform pg_notify('sereno.schedule', '');
    end if;
end $$;

CREATE FUNCTION sereno.write_lanes(moment timestamp with time zone, served bigint[], served_queues integer[], served_priorities smallint[], served_seqs bigint[], queues text[], changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[], seen_priorities smallint[], seen_seqs bigint[], gate_ids bigint[], held text[], tokens double precision[], look_in double precision[], exact boolean[], looks integer[], share_queues text[], share_keys text[], clocks double precision[]) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    ended   bigint[];
    locked  bigint[];
begin
    update sereno.gates
    set held = gate.held::bigint[], tokens = gate.tokens, used_at = greatest(gates.used_at, moment), looks = gate.looks,
        look_at = case
            when gate.look is not null then
                case when not gate.exact and gates.look_at > sereno.now() + interval '2 seconds' then gates.look_at
                     else sereno.now() + make_interval(secs => gate.look) end
            when gates.look_at is null then null
            when (select true from sereno.lanes where has_work and waits_for = gates.id limit 1)
                then greatest(gates.look_at, sereno.now())
            end
    from unnest(gate_ids, write_lanes.held, write_lanes.tokens, look_in, exact, write_lanes.looks)
        as gate(id, held, tokens, look, exact, looks)
    where gates.id = any(gate_ids) and gates.id = gate.id;

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
            floor_priority = next.priority, floor_seq = next.seq, served_at = sereno.now()
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
    -- By which those gates are known again that nobody else has written since.
    return pg_current_xact_id()::xid::text;
end $$;

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
    said text NOT NULL,
    details jsonb NOT NULL,
    words text NOT NULL,
    remedy text NOT NULL,
    opened_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    told_at timestamp with time zone,
    times integer DEFAULT 0 NOT NULL,
    openings integer DEFAULT 1 NOT NULL,
    resolved_at timestamp with time zone,
    resolved_told_at timestamp with time zone,
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

CREATE TABLE sereno.answers (
    who text NOT NULL,
    key text NOT NULL,
    request bytea NOT NULL,
    status integer,
    body bytea,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL
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
    fingerprint text,
    CONSTRAINT attempts_outcome_check CHECK ((outcome = ANY (ARRAY['retry'::text, 'snooze'::text, 'release'::text, 'crash'::text, 'dead'::text, 'cancelled'::text, 'succeeded'::text])))
);

CREATE TABLE sereno.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
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
    due_at timestamp with time zone NOT NULL,
    job_id bigint,
    taken_at timestamp with time zone,
    ends_at timestamp with time zone,
    gathers boolean DEFAULT false NOT NULL,
    deliveries bigint[] NOT NULL,
    CONSTRAINT batches_purpose_check CHECK ((purpose = ANY (ARRAY['send'::text, 'ask'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05');

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
    look jsonb NOT NULL,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    tenant text,
    rate double precision,
    reason text,
    asked_by text NOT NULL,
    total bigint,
    total_exact boolean DEFAULT true NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    asked_to_stop bigint DEFAULT 0 NOT NULL,
    left_alone bigint DEFAULT 0 NOT NULL,
    cursor bigint DEFAULT 0 NOT NULL,
    cursor_key text DEFAULT ''::text NOT NULL,
    upper_id bigint NOT NULL,
    job_id bigint,
    paced_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    started_at timestamp with time zone,
    seen_at timestamp with time zone,
    stop_asked_at timestamp with time zone,
    stop_asked_by text,
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
WITH (autovacuum_vacuum_scale_factor='0.05', fillfactor='50');

ALTER TABLE sereno.deliveries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.deliveries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

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

CREATE TABLE sereno.duties (
    name text NOT NULL,
    done_at timestamp with time zone NOT NULL
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

CREATE TABLE sereno.events (
    id bigint NOT NULL,
    type text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    subject text,
    key text,
    category text,
    payload jsonb NOT NULL,
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
    trace text
);

ALTER TABLE sereno.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.fires (
    planned_at timestamp with time zone NOT NULL,
    schedule_id bigint NOT NULL,
    fired_at timestamp with time zone NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 NOT NULL,
    reason text
)
PARTITION BY RANGE (planned_at);

CREATE TABLE sereno.fires_20261115 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261116 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261117 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261118 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261119 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261120 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261121 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_20261122 (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.fires_default (
    planned_at timestamp with time zone CONSTRAINT fires_planned_at_not_null NOT NULL,
    schedule_id bigint CONSTRAINT fires_schedule_id_not_null NOT NULL,
    fired_at timestamp with time zone CONSTRAINT fires_fired_at_not_null NOT NULL,
    job_id bigint,
    stands_for integer DEFAULT 1 CONSTRAINT fires_stands_for_not_null NOT NULL,
    reason text
);

CREATE TABLE sereno.gates (
    id bigint NOT NULL,
    limit_name text,
    key text NOT NULL,
    tokens double precision,
    used_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    closed_until timestamp with time zone,
    held bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    look_at timestamp with time zone,
    looks integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

COMMENT ON COLUMN sereno.gates.held IS 'Jobs that it let in, each with a slot of its own; those behind a negative number -n share n slots.';

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
    fingerprint text
)
PARTITION BY LIST (state);

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
    fingerprint text
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
    fingerprint text
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
    fingerprint text
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

ALTER TABLE sereno.inbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.inbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

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
    args jsonb DEFAULT '{}'::jsonb NOT NULL,
    schedule_id bigint,
    planned_at timestamp with time zone,
    stands_for integer,
    lane bigint,
    order_id bigint,
    keys jsonb,
    CONSTRAINT jobs_args CHECK ((jsonb_typeof(args) = 'object'::text)),
    CONSTRAINT jobs_dates CHECK (((run_at > '1900-01-01 00:00:00+00'::timestamp with time zone) AND (run_at < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT jobs_lane_keys CHECK (((lane IS NULL) = (keys IS NULL))),
    CONSTRAINT jobs_priority CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT jobs_state CHECK ((((state = 'running'::text) AND (session_id IS NOT NULL) AND (attempt > 0)) OR ((state = 'ready'::text) AND (session_id IS NULL) AND (ready_seq IS NOT NULL)) OR ((state = 'scheduled'::text) AND (session_id IS NULL))))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sereno.jobs ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME sereno.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

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
    gates bigint[] NOT NULL,
    units integer[] NOT NULL,
    order_id bigint,
    fair text,
    band smallint NOT NULL,
    turn double precision NOT NULL,
    has_work boolean DEFAULT true NOT NULL,
    waits_for bigint,
    floor_priority smallint DEFAULT 0 NOT NULL,
    floor_seq bigint DEFAULT 0 NOT NULL,
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

CREATE TABLE sereno.pauses (
    kind text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    paused_by text NOT NULL,
    note text,
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

CREATE TABLE sereno.progress (
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    fraction double precision NOT NULL,
    note text,
    updated_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT progress_fraction_check CHECK (((fraction >= (0)::double precision) AND (fraction <= (1)::double precision)))
);

CREATE SEQUENCE sereno.ready_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE sereno.receipts (
    id bigint NOT NULL,
    channel text NOT NULL,
    receipt_id text NOT NULL,
    delivery_id bigint,
    outcome text NOT NULL,
    code text,
    at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

ALTER TABLE sereno.receipts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.receipts_id_seq
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
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL
);

ALTER TABLE sereno.recipients ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.recipients_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
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
    args jsonb DEFAULT '{}'::jsonb NOT NULL,
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
    CONSTRAINT schedules_args_check CHECK ((jsonb_typeof(args) = 'object'::text)),
    CONSTRAINT schedules_disable_after_check CHECK ((disable_after > 0)),
    CONSTRAINT schedules_max_fires_check CHECK ((max_fires > 0)),
    CONSTRAINT schedules_missed_check CHECK ((missed = ANY (ARRAY['skip'::text, 'latest'::text, 'all'::text]))),
    CONSTRAINT schedules_missed_limit_check CHECK ((missed_limit > 0)),
    CONSTRAINT schedules_next CHECK (((next_run_at IS NULL) OR (state = 'enabled'::text))),
    CONSTRAINT schedules_on_conflict_check CHECK ((on_conflict = ANY (ARRAY['keep'::text, 'replace'::text]))),
    CONSTRAINT schedules_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'allow'::text, 'queue_one'::text, 'cancel_previous'::text]))),
    CONSTRAINT schedules_priority_check CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT schedules_rule_check CHECK ((jsonb_typeof(rule) = 'object'::text)),
    CONSTRAINT schedules_state_check CHECK ((state = ANY (ARRAY['enabled'::text, 'paused'::text, 'disabled'::text, 'parked'::text, 'finished'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_scale_factor='0.1');

ALTER TABLE sereno.schedules ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.schedules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

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
    CONSTRAINT sessions_state_check CHECK ((state = ANY (ARRAY['alive'::text, 'closed'::text, 'dead'::text])))
)
WITH (fillfactor='50');

ALTER TABLE sereno.sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sereno.sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sereno.shares (
    queue text NOT NULL,
    key text NOT NULL,
    clock double precision NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE sereno.steps (
    job_id bigint NOT NULL,
    name text NOT NULL,
    attempt integer NOT NULL,
    result jsonb,
    done_at timestamp with time zone DEFAULT sereno.now() NOT NULL
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

CREATE TABLE sereno.weights (
    key text NOT NULL,
    weight double precision NOT NULL,
    changed_by text,
    changed_at timestamp with time zone DEFAULT sereno.now() NOT NULL,
    CONSTRAINT weights_weight_check CHECK (((weight >= (0.001)::double precision) AND (weight <= (1000000)::double precision)))
);

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261115 FOR VALUES FROM ('2026-11-15 00:00:00+00') TO ('2026-11-16 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261116 FOR VALUES FROM ('2026-11-16 00:00:00+00') TO ('2026-11-17 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261117 FOR VALUES FROM ('2026-11-17 00:00:00+00') TO ('2026-11-18 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261118 FOR VALUES FROM ('2026-11-18 00:00:00+00') TO ('2026-11-19 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261119 FOR VALUES FROM ('2026-11-19 00:00:00+00') TO ('2026-11-20 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261120 FOR VALUES FROM ('2026-11-20 00:00:00+00') TO ('2026-11-21 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261121 FOR VALUES FROM ('2026-11-21 00:00:00+00') TO ('2026-11-22 00:00:00+00');

ALTER TABLE ONLY sereno.fires ATTACH PARTITION sereno.fires_20261122 FOR VALUES FROM ('2026-11-22 00:00:00+00') TO ('2026-11-23 00:00:00+00');

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

ALTER TABLE ONLY sereno.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (who, key);

ALTER TABLE ONLY sereno.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job_id, number);

ALTER TABLE ONLY sereno.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.bulk_operations
    ADD CONSTRAINT bulk_operations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.channel_codes
    ADD CONSTRAINT channel_codes_pkey PRIMARY KEY (minute, channel, account, code);

ALTER TABLE ONLY sereno.channel_minutes
    ADD CONSTRAINT channel_minutes_pkey PRIMARY KEY (minute, channel, account);

ALTER TABLE ONLY sereno.channel_pauses
    ADD CONSTRAINT channel_pauses_pkey PRIMARY KEY (channel, account);

ALTER TABLE ONLY sereno.clock
    ADD CONSTRAINT clock_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY sereno.deliveries
    ADD CONSTRAINT deliveries_once UNIQUE NULLS NOT DISTINCT (event_id, recipient_id, channel, address_id);

ALTER TABLE ONLY sereno.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.delivery_hours
    ADD CONSTRAINT delivery_hours_pkey PRIMARY KEY (hour, event, channel, state, reason);

ALTER TABLE ONLY sereno.delivery_tenant_hours
    ADD CONSTRAINT delivery_tenant_hours_pkey PRIMARY KEY (tenant, hour, channel);

ALTER TABLE ONLY sereno.duties
    ADD CONSTRAINT duties_pkey PRIMARY KEY (name);

ALTER TABLE ONLY sereno.early_receipts
    ADD CONSTRAINT early_receipts_pkey PRIMARY KEY (id);

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

ALTER TABLE ONLY sereno.fires
    ADD CONSTRAINT fires_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261115
    ADD CONSTRAINT fires_20261115_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261116
    ADD CONSTRAINT fires_20261116_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261117
    ADD CONSTRAINT fires_20261117_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261118
    ADD CONSTRAINT fires_20261118_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261119
    ADD CONSTRAINT fires_20261119_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261120
    ADD CONSTRAINT fires_20261120_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261121
    ADD CONSTRAINT fires_20261121_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_20261122
    ADD CONSTRAINT fires_20261122_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.fires_default
    ADD CONSTRAINT fires_default_pkey PRIMARY KEY (planned_at, schedule_id);

ALTER TABLE ONLY sereno.gates
    ADD CONSTRAINT gates_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_delivery_id_key UNIQUE (delivery_id);

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (id);

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

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_once UNIQUE NULLS NOT DISTINCT (recipient_id, tenant, event, category, channel);

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY sereno.receipts
    ADD CONSTRAINT receipts_once UNIQUE (channel, receipt_id);

ALTER TABLE ONLY sereno.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sereno.recipients
    ADD CONSTRAINT recipients_key UNIQUE (tenant, key);

ALTER TABLE ONLY sereno.recipients
    ADD CONSTRAINT recipients_pkey PRIMARY KEY (id);

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

ALTER TABLE ONLY sereno.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (job_id, name);

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

ALTER TABLE ONLY sereno.weights
    ADD CONSTRAINT weights_pkey PRIMARY KEY (key);

CREATE INDEX addresses_by_text ON sereno.addresses USING btree (channel, address);

CREATE UNIQUE INDEX alerts_open ON sereno.alerts USING btree (rule, kind, subject) WHERE (resolved_at IS NULL);

CREATE INDEX alerts_resolved ON sereno.alerts USING btree (resolved_at) WHERE (resolved_at IS NOT NULL);

CREATE INDEX answers_at ON sereno.answers USING btree (at);

CREATE INDEX attempts_fingerprint ON sereno.attempts USING btree (fingerprint, job_id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX audit_subject ON sereno.audit USING btree (subject, id DESC);

CREATE INDEX batches_due ON sereno.batches USING btree (purpose, channel, account, due_at, id) WHERE (job_id IS NULL);

CREATE INDEX batches_gathering ON sereno.batches USING btree (channel, account, due_at) WHERE (gathers AND (job_id IS NULL));

CREATE INDEX batches_taken ON sereno.batches USING btree (channel, account) WHERE (job_id IS NOT NULL);

CREATE INDEX bulk_operations_live ON sereno.bulk_operations USING btree (job_id) WHERE (state = ANY (ARRAY['waiting'::text, 'running'::text]));

CREATE INDEX bulk_operations_tenant ON sereno.bulk_operations USING btree (tenant, id) WHERE (tenant IS NOT NULL);

CREATE INDEX deliveries_gathered ON sereno.deliveries USING btree (recipient_id, digest, id) WHERE (digest IS NOT NULL);

CREATE INDEX deliveries_of_recipient ON sereno.deliveries USING btree (recipient_id, id);

CREATE INDEX delivery_tenant_hours_old ON sereno.delivery_tenant_hours USING brin (hour);

CREATE INDEX error_hours_hour ON sereno.error_hours USING btree (hour);

CREATE INDEX events_subject ON sereno.events USING btree (subject, id) WHERE (subject IS NOT NULL);

CREATE INDEX events_trace ON sereno.events USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE INDEX events_unmatched ON sereno.events USING btree (due_at) WHERE (matched_at IS NULL);

CREATE INDEX fires_skipped ON ONLY sereno.fires USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261115_schedule_id_planned_at_idx ON sereno.fires_20261115 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261116_schedule_id_planned_at_idx ON sereno.fires_20261116 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261117_schedule_id_planned_at_idx ON sereno.fires_20261117 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261118_schedule_id_planned_at_idx ON sereno.fires_20261118 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261119_schedule_id_planned_at_idx ON sereno.fires_20261119 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261120_schedule_id_planned_at_idx ON sereno.fires_20261120 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261121_schedule_id_planned_at_idx ON sereno.fires_20261121 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_20261122_schedule_id_planned_at_idx ON sereno.fires_20261122 USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX fires_default_schedule_id_planned_at_idx ON sereno.fires_default USING btree (schedule_id, planned_at) WHERE (reason IS NOT NULL);

CREATE INDEX gates_limit ON sereno.gates USING btree (limit_name);

CREATE INDEX gates_look ON sereno.gates USING btree (look_at) WHERE (look_at IS NOT NULL);

CREATE INDEX history_dead_blocks ON sereno.history_dead USING btree (queue, ((keys ->> 'order'::text))) WHERE (keys ? 'blocks'::text);

CREATE INDEX history_dead_fingerprint ON sereno.history_dead USING btree (fingerprint, id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX history_dead_finished ON sereno.history_dead USING btree (finished_at);

CREATE INDEX history_trace ON ONLY sereno.history USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_dead_hashtext_id_idx ON sereno.history_dead USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_id ON ONLY sereno.history USING btree (id);

CREATE INDEX history_dead_id_idx ON sereno.history_dead USING btree (id);

CREATE INDEX history_schedule ON ONLY sereno.history USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_dead_schedule_id_finished_at_idx ON sereno.history_dead USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_done_hashtext_id_idx ON ONLY sereno.history_done USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_done_id_idx ON ONLY sereno.history_done USING btree (id);

CREATE INDEX history_done_schedule_id_finished_at_idx ON ONLY sereno.history_done USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX history_done_default_hashtext_id_idx ON sereno.history_done_default USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE INDEX history_done_default_id_idx ON sereno.history_done_default USING btree (id);

CREATE INDEX history_done_default_schedule_id_finished_at_idx ON sereno.history_done_default USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX inbox_archived ON sereno.inbox USING btree (recipient_id, id DESC) WHERE (archived_at IS NOT NULL);

CREATE INDEX inbox_of_recipient ON sereno.inbox USING btree (recipient_id, id DESC) WHERE (archived_at IS NULL);

CREATE INDEX inbox_unread ON sereno.inbox USING btree (recipient_id) WHERE ((read_at IS NULL) AND (archived_at IS NULL));

CREATE INDEX jobs_in_order ON sereno.jobs USING btree (order_id, id) WHERE (order_id IS NOT NULL);

CREATE INDEX jobs_lane ON sereno.jobs USING btree (queue, lane, priority, ready_seq) WHERE ((state = 'ready'::text) AND (lane IS NOT NULL));

CREATE INDEX jobs_ready ON sereno.jobs USING btree (queue, priority, ready_seq) WHERE ((state = 'ready'::text) AND (lane IS NULL));

CREATE INDEX jobs_running ON sereno.jobs USING btree (session_id) WHERE (state = 'running'::text);

CREATE INDEX jobs_schedule ON sereno.jobs USING btree (schedule_id) WHERE (schedule_id IS NOT NULL);

CREATE INDEX jobs_scheduled ON sereno.jobs USING btree (run_at) WHERE (state = 'scheduled'::text);

CREATE INDEX jobs_trace ON sereno.jobs USING btree (hashtext(trace), id) WHERE (trace IS NOT NULL);

CREATE UNIQUE INDEX jobs_unique ON sereno.jobs USING btree (task, unique_key, tenant) NULLS NOT DISTINCT WHERE (unique_key IS NOT NULL);

CREATE INDEX lanes_idle ON sereno.lanes USING btree (served_at) WHERE (NOT has_work);

CREATE INDEX lanes_open ON sereno.lanes USING btree (queue, band, turn) WHERE (has_work AND (waits_for IS NULL));

CREATE INDEX lanes_waiting ON sereno.lanes USING btree (waits_for, turn) WHERE (has_work AND (waits_for IS NOT NULL));

CREATE INDEX limits_changed ON sereno.limits USING btree (changed_at);

CREATE INDEX limits_queue ON sereno.limits USING btree (queue) WHERE (queue IS NOT NULL);

CREATE INDEX logs_at ON sereno.logs USING btree (at);

CREATE INDEX logs_event ON sereno.logs USING btree (event, id);

CREATE INDEX logs_job ON sereno.logs USING btree (job_id, id) WHERE (job_id IS NOT NULL);

CREATE INDEX logs_tenant ON sereno.logs USING btree (tenant, id) WHERE (tenant IS NOT NULL);

CREATE INDEX logs_trace ON sereno.logs USING btree (trace_id, id) WHERE (trace_id IS NOT NULL);

CREATE INDEX preferences_default ON sereno.preferences USING btree (tenant) WHERE (recipient_id IS NULL);

CREATE INDEX receipts_of_delivery ON sereno.receipts USING btree (delivery_id);

CREATE INDEX recipients_in_order ON sereno.recipients USING btree (tenant, id);

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

CREATE UNIQUE INDEX tokens_name ON sereno.tokens USING btree (name) WHERE (revoked_at IS NULL);

CREATE INDEX unique_keys_until ON sereno.unique_keys USING btree (until) WHERE (until < 'infinity'::timestamp with time zone);

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261115_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261115_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261116_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261116_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261117_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261117_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261118_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261118_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261119_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261119_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261120_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261120_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261121_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261121_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_20261122_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_20261122_schedule_id_planned_at_idx;

ALTER INDEX sereno.fires_pkey ATTACH PARTITION sereno.fires_default_pkey;

ALTER INDEX sereno.fires_skipped ATTACH PARTITION sereno.fires_default_schedule_id_planned_at_idx;

ALTER INDEX sereno.history_trace ATTACH PARTITION sereno.history_dead_hashtext_id_idx;

ALTER INDEX sereno.history_id ATTACH PARTITION sereno.history_dead_id_idx;

ALTER INDEX sereno.history_schedule ATTACH PARTITION sereno.history_dead_schedule_id_finished_at_idx;

ALTER INDEX sereno.history_done_hashtext_id_idx ATTACH PARTITION sereno.history_done_default_hashtext_id_idx;

ALTER INDEX sereno.history_done_id_idx ATTACH PARTITION sereno.history_done_default_id_idx;

ALTER INDEX sereno.history_done_schedule_id_finished_at_idx ATTACH PARTITION sereno.history_done_default_schedule_id_finished_at_idx;

ALTER INDEX sereno.history_trace ATTACH PARTITION sereno.history_done_hashtext_id_idx;

ALTER INDEX sereno.history_id ATTACH PARTITION sereno.history_done_id_idx;

ALTER INDEX sereno.history_schedule ATTACH PARTITION sereno.history_done_schedule_id_finished_at_idx;

CREATE TRIGGER clock_moved AFTER INSERT OR DELETE OR UPDATE ON sereno.clock FOR EACH STATEMENT EXECUTE FUNCTION sereno.tell_of_clock();

CREATE TRIGGER wake_lane_of_new AFTER INSERT ON sereno.jobs FOR EACH ROW WHEN (((new.lane IS NOT NULL) AND (new.state = 'ready'::text))) EXECUTE FUNCTION sereno.wake_lane();

CREATE TRIGGER wake_lane_of_ready AFTER UPDATE ON sereno.jobs FOR EACH ROW WHEN (((new.lane IS NOT NULL) AND (new.state = 'ready'::text))) EXECUTE FUNCTION sereno.wake_lane();

CREATE TRIGGER wake_order_of_freed AFTER DELETE ON sereno.history_dead FOR EACH ROW WHEN ((old.keys ? 'blocks'::text)) EXECUTE FUNCTION sereno.wake_order();

CREATE TRIGGER wake_order_of_gone AFTER DELETE ON sereno.jobs FOR EACH ROW WHEN ((old.order_id IS NOT NULL)) EXECUTE FUNCTION sereno.wake_order();

ALTER TABLE ONLY sereno.addresses
    ADD CONSTRAINT addresses_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;

ALTER TABLE ONLY sereno.inbox
    ADD CONSTRAINT inbox_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;

ALTER TABLE ONLY sereno.preferences
    ADD CONSTRAINT preferences_recipient_id_fkey FOREIGN KEY (recipient_id) REFERENCES sereno.recipients(id) ON DELETE CASCADE;
