-- What several queries share: a line "-- use: NAME" in a query stands for the lines of the part.

-- part: live_filter
-- A JobFilter, as conditions on sereno.jobs; what is null does not filter.
  and (%(ids)s::bigint[] is null or id = any(%(ids)s))
  and (%(states)s::text[] is null or state = any(%(states)s))
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(tag)s::text is null or tags @> array[%(tag)s::text])
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(error)s::text is null
       or exists (select from sereno.attempts tried
                  where tried.job_id = jobs.id
                    and strpos(lower(concat_ws(' ', tried.reason, tried.error_type, tried.error_message)),
                               lower(%(error)s)) > 0))

-- part: finished_filter
-- The same on sereno.history.
  and (%(ids)s::bigint[] is null or id = any(%(ids)s))
  and (%(states)s::text[] is null or state = any(%(states)s))
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(tag)s::text is null or tags @> array[%(tag)s::text])
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(finished_after)s::timestamptz is null or finished_at >= %(finished_after)s)
  and (%(finished_before)s::timestamptz is null or finished_at < %(finished_before)s)
  and (%(error)s::text is null
       or strpos(lower(concat_ws(' ', reason, error_type, error_message)), lower(%(error)s)) > 0)
