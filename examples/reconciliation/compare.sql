-- Replaces the differences of an account's month, and returns their count and sum. Only orders of days whose sales are
-- known are compared: what the partner owes by its sales, and what the entries of the newest processed file add up to.
with newest as (
    select id from reconciliation.files
    where account = %(account)s and competence = %(competence)s and processed_at is not null
    order by received_at desc, id desc limit 1
),
known as (
    select day from reconciliation.sales_days
    where account = %(account)s and day >= (%(competence)s || '-01')::date
      and day < (%(competence)s || '-01')::date + interval '1 month'
),
sold as (
    select order_id, balance from reconciliation.sales
    where account = %(account)s and day in (select day from known)
),
paid as (
    select order_id, coalesce(sum(amount) filter (where counts), 0) as amount
    from reconciliation.entries
    where file_id = (select id from newest) and order_id is not null
    group by order_id
    -- An order of a day that is not known may still be known as a sale.
    having min(order_day) in (select day from known) or order_id in (select order_id from sold)
),
found as (
    select coalesce(paid.order_id, sold.order_id) as order_id, paid.amount as in_file, sold.balance as in_sales,
           case when paid.order_id is null then 'not in the file'
                when sold.order_id is null then 'not in the sales'
                else 'other amount' end as kind
    from paid full join sold on sold.order_id = paid.order_id
    where exists (select from newest) and coalesce(paid.amount, 0) <> coalesce(sold.balance, 0)
),
gone as (
    delete from reconciliation.differences
    where account = %(account)s and competence = %(competence)s and order_id not in (select order_id from found)
),
written as (
    insert into reconciliation.differences (account, competence, order_id, kind, in_file, in_sales, since)
    select %(account)s, %(competence)s, order_id, kind, in_file, in_sales, %(now)s from found
    on conflict (account, competence, order_id) do update
    set kind = excluded.kind, in_file = excluded.in_file, in_sales = excluded.in_sales
)
select count(*), coalesce(sum(coalesce(in_file, 0) - coalesce(in_sales, 0)), 0) from found
