-- Preferences from SQL: filters compiled as the program does it, and quiet hours checked.

-- A text as a pattern that holds in capitals or not, whatever the locale of the database: each letter with those that Unicode 14
-- has for it in the other case, one to one. Runs of letters as first, last, step, and how far it is to the other one; in
-- `two_way`, from there to here as well.
create function sereno.in_any_case(wanted text) returns text
    language sql immutable as $$
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
    $$;

-- An error, with what is wrong, and how a filter is written.
create function sereno.refuse_filter(wrong text, variadic parts text[] default '{}') returns void
    language plpgsql immutable as $$
begin
    raise exception '%', format(wrong, variadic array(
            select left(part, 60) from unnest(parts) with ordinality as p(part, n) order by n))
        using errcode = 'invalid_parameter_value',
        hint = 'A filter is an object such as {"region": ["RM", "V"], "amount": {"min": 1000}}; {} says: always.';
end $$;

-- The tests of one field as a jsonpath: one element at its path passes all of them, or one.
create function sereno.condition_field(key text, tests text[], joint text) returns text
    language plpgsql immutable as $$
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
end $$;

-- One value as a jsonpath writes it.
create function sereno.condition_value(key text, value jsonb) returns text
    language plpgsql immutable as $$
begin
    if jsonb_typeof(value) in ('array', 'object') then
        perform sereno.refuse_filter('"%s" is compared with a text, a number, true, false or null, not %s', key, value::text);
    elsif jsonb_typeof(value) = 'number' and length(value::text) > 300 and abs(value::numeric) >= 2::numeric ^ 1024 then
        perform sereno.refuse_filter('"%s": a number of at most 1024 bits can be compared', key);
    end if;
    return value::text;
end $$;

-- {"min": 1, "max": 5, "contains": "road", "exists": true}
create function sereno.condition_tests(key text, tests jsonb) returns text[]
    language plpgsql immutable as $$
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

-- An object of a filter, all of whose keys must hold, as a jsonpath; and how many clauses that is.
create function sereno.condition_object(wanted jsonb, depth integer, out path text, out clauses integer)
    language plpgsql immutable as $$
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

-- A filter as PostgreSQL matches it: true or false for every payload, as the program compiles it.
create function sereno.condition(filter jsonb) returns jsonpath
    language plpgsql immutable as $$
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

-- Quiet hours as they are kept, or an error: {"start": "22:00", "end": "08:00", "days": ["friday", "saturday"]}, or a list.
create function sereno.quiet_spans(quiet jsonb) returns jsonb
    language plpgsql immutable as $$
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
end $$;

-- What somebody wants, or without a recipient the default of a tenant; answers the id. What is given changes, for exactly this
-- category, event and channel; what is left out stays; what `clear` names is taken back. A row that says nothing is not kept.
--   select sereno.put_preference('user:7', category => 'tenders', filter => '{"amount": {"min": 1000}}');
create function sereno.put_preference(
    recipient text, tenant text default null, category text default null, event text default null, channel text default null,
    wanted boolean default null, filter jsonb default null, quiet jsonb default null, clear text[] default '{}'
) returns bigint
    language plpgsql as $$
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
