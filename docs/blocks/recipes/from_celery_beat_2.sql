-- the block of the page
do $$ begin
    assert (select last_run_at > now() - interval '1 minute' from django_celery_beat_periodictask);
end $$;
