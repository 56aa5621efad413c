-- The clock of the database.

-- name: clock
-- The database's clock, the only one that decides.
select sereno.micros(sereno.now());
