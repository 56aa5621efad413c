-- the block of the page
do $$ begin
    assert (select bool_and(active) from cron.job);
end $$;
