from orders import app, kit

from sereno import Limit, Rate


# the block of the page


job = update_stock.using(tenant="r42").enqueue("a7", "coffee")
kit.drain()
assert kit.job(job).state == "succeeded"
limits = {limit.name: limit.numbers for limit in app.limits.list()}
assert sorted(limits) == ["ifood", "queue.reconcile.concurrency", "update_stock.concurrency"], limits
