"""An application with an isolated task that returns a result."""

from sereno import Sereno

app = Sereno()


@app.task(isolate=True)
def count(of: str) -> int:
    return len(of)
