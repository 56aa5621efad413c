-- Roles of sereno: each process logs in as a role that has the privileges it needs, and no others.
--
-- Read it, and run it with psql after `sereno migrate`, as a superuser or as the owner of the schema with CREATEROLE.
-- Run it again after each upgrade: it adds missing privileges and revokes unneeded ones.
-- It sets no passwords.

begin;
set local lock_timeout = '3s';

-- 1. The roles. The owner owns everything and never logs in. The current user must be a member of it to change owners.
do $$
declare
    role text;
    becomes constant text := case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end;
begin
    if to_regclass('sereno.migrations') is null then
        raise exception 'there is no schema sereno here' using errcode = 'undefined_table', hint = 'Run: sereno migrate';
    end if;
    if to_regrole('sereno_owner') is null then
        create role sereno_owner nologin;
    end if;
    if not pg_has_role('sereno_owner', becomes) then
        execute format('grant sereno_owner to %I', current_user);
    end if;
    foreach role in array array['sereno_worker', 'sereno_server', 'sereno_reader', 'sereno_producer', 'sereno_procedure'] loop
        if to_regrole(role) is null then
            execute format('create role %I login', role);
        end if;
        if not has_database_privilege(role, current_database(), 'connect') then
            execute format('grant connect on database %I to %I', current_database(), role);
        end if;
    end loop;
end $$;

-- 2. Everything belongs to the owner role, whichever role created it.
do $$
declare
    thing text;
begin
    for thing in
        select format('schema %I', nspname) from pg_namespace
        where oid in ('sereno'::regnamespace, 'sereno_archive'::regnamespace) and nspowner <> 'sereno_owner'::regrole
        union all
        select format('%s %s', case relkind when 'S' then 'sequence' when 'c' then 'type' else 'table' end, oid::regclass) from pg_class
        where relnamespace in ('sereno'::regnamespace, 'sereno_archive'::regnamespace) and relowner <> 'sereno_owner'::regrole
          and (relkind in ('r', 'p', 'v', 'm', 'c')
               or (relkind = 'S' and not exists (select from pg_depend where objid = pg_class.oid and deptype in ('a', 'i'))))
        union all
        select format('routine %s', oid::regprocedure) from pg_proc
        where pronamespace = 'sereno'::regnamespace and proowner <> 'sereno_owner'::regrole
    loop
        execute format('alter %s owner to sereno_owner', thing);
    end loop;
end $$;

set local role sereno_owner;

-- 3. Revoke all privileges of the other roles, on existing and future objects.
-- here: nothing
alter default privileges revoke execute on routines from public;

-- 4. Grant what each role needs. The producer may call a few functions; the procedure role gets nothing here.
grant usage on schema sereno to sereno_worker, sereno_server, sereno_reader, sereno_producer;
grant usage on schema sereno_archive to sereno_worker, sereno_server, sereno_reader;
-- here: tables
-- here: sequences

-- Functions run with the privileges of their caller.
do $$
declare
    name regprocedure;
begin
    for name in select oid from pg_proc where pronamespace = 'sereno'::regnamespace and prosecdef loop
        execute format('alter function %s security invoker reset search_path', name);
    end loop;
end $$;
grant execute on all routines in schema sereno to sereno_worker, sereno_server, sereno_reader;

-- These run as the owner: each does one thing that its caller may not do directly.
-- here: functions

-- 5. Daily partitions, and tables that wait to be archived, are readable like the tables that they come from.
grant insert on all tables in schema sereno_archive to sereno_worker;
alter default privileges in schema sereno_archive grant insert on tables to sereno_worker;
do $$
begin
    perform sereno.share_reading(inhparent, inhrelid) from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent in ('sereno.history_done'::regclass, 'sereno.fires'::regclass) and relname ~ '_[0-9]{8}$';
    perform sereno.share_reading(to_regclass(source), to_regclass(format('sereno_archive.%I', held_in)))
    from sereno.archive_batches where held_in is not null;
end $$;

commit;

-- Then:
--   \password sereno_worker                          a password for each role that logs in
--   grant sereno_owner to …;                         for the user that runs `sereno migrate` with each upgrade
--   grant select, update, delete on … to sereno_worker;      each table of yours that `app.archive.table` names
--   grant execute on function … to sereno_procedure;         each procedure of yours that jobs may call
-- And check the privileges of PUBLIC in this database, such as: revoke create on schema public from public;
