-- name: read_only
-- For transactions that only read.
set transaction read only;

-- name: statement_timeout
-- For this transaction only: a query that takes too long is cancelled and does not load the server.
select set_config('statement_timeout', %(milliseconds)s::text, true);
