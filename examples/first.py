"""The smallest application: one task, one job.

sereno worker examples/first.py:app --embedded
python examples/first.py
"""

from sereno import Sereno

app = Sereno()


@app.task
async def greet(name: str) -> None:
    print(f"Hello, {name}!", flush=True)


if __name__ == "__main__":
    job = greet.enqueue("Ada")
    print(f"job {job.id} is accepted")
