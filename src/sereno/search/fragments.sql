-- Shared by several queries: a line "-- use: search.NAME" in a query is replaced by the lines of the fragment.

-- fragment: terms_begin
-- Search terms are tests of a row, all of which must hold. A list query uses this fragment, then one `when` for each of its
-- fields, then terms_end. A test has patterns, pieces of JSON, or numbers from `low` (inclusive) to `high` (exclusive);
-- times are in seconds. A test on null fails. `hides`: errors are masked for this reader, so the masked text is compared.
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb)
                       as term (field text, negated boolean, patterns text[], pieces jsonb,
                                low double precision, high double precision, hides boolean)
           where negated = coalesce(case field

-- fragment: terms_end
-- The end of the condition that terms_begin starts.
           end, false)))
