"""A schedule per account, in its own time zone, and a cycle declared in code.

sereno worker examples/schedules.py:app --embedded
python examples/schedules.py
sereno schedule list
"""

from sereno import Context, Daily, Every, Sereno

app = Sereno()


@app.task
async def reconcile(account: str, month: str) -> None:
    print(f"reconciling {account} for {month}", flush=True)


@app.cycle(Every("2m"))
async def ingest(ctx: Context) -> None:
    ctx.log.info("polling new orders")


if __name__ == "__main__":
    for account, zone in [("r42", "America/Sao_Paulo"), ("r43", "Europe/Riga")]:
        made = app.schedules.upsert(
            f"reconcile:{account}",
            reconcile.job(account, "{fire:%Y-%m}"),
            Daily("03:00", tz=zone, spread="20m"),
            tenant=account,
        )
        print(f"{made.key} is {made.what}, next at {made.next_run_at}")
    print(f"job {app.schedules.run('reconcile:r42').id} is accepted")
