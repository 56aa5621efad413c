-- What several queries share: a line "-- use: search.NAME" in a query stands for the lines of the fragment.

-- fragment: terms_begin
-- The terms of a search are tests of a row, of which none may fail. A list uses this, has a `when` for each of its fields,
-- and uses terms_end. A test has patterns, or pieces of JSON, or numbers from `low` on and below `high`; of a moment, these
-- are seconds. What is null is not so. `hides`: for somebody who sees errors masked; then they are found by what is seen.
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb)
                       as term (field text, negated boolean, patterns text[], pieces jsonb,
                                low double precision, high double precision, hides boolean)
           where negated = coalesce(case field

-- fragment: terms_end
-- See above.
           end, false)))
