-- A role belongs to the whole server: it is not left behind.
begin;
-- the block of the page
set local role reports;
call reporting.close_day('2026-10-31');
reset role;
do $$ begin
    assert (select count(*) from reporting.closed) = 1;
end $$;
rollback;
