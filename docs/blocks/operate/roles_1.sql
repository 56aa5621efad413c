-- Roles belong to the whole server: none is left behind.
begin;
create role sereno_worker;
create role sereno_procedure;
create table orders (id bigint);
create table tenders (id bigint);
create schema reporting;
create procedure reporting.close_day() language sql as 'select';
revoke execute on procedure reporting.close_day from public;
-- the block of the page
do $$ begin
    assert has_table_privilege('sereno_worker', 'orders', 'update');
    assert not has_table_privilege('sereno_worker', 'orders', 'delete');
    assert has_table_privilege('sereno_worker', 'tenders', 'delete');
    assert has_function_privilege('sereno_procedure', 'reporting.close_day()', 'execute');
end $$;
rollback;
