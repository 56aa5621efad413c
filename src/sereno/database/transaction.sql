-- name: begin_read
-- For transactions that only read, one call instead of one for each setting. Compiling a query takes longer than a page may
-- take; parallel workers would take processor time from others; and every query is written for an index.
select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %(milliseconds)s::text, true),
       set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       set_config('enable_seqscan', 'off', true);

-- name: statement_timeout
-- For this transaction only: a query that takes too long is cancelled and does not load the server.
select set_config('statement_timeout', %(milliseconds)s::text, true);
