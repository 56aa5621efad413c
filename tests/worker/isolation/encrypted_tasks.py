"""An encrypted task that another process can import."""

import base64

from sereno import Sereno

# The same in every process that imports this module.
KEY = f"test:{base64.b64encode(bytes(range(32))).decode()}"

app = Sereno("postgresql://unused", encryption_keys=[KEY])


@app.task(isolate=True, encrypt=True, retry=0)
def refuse(card: str) -> None:
    raise ValueError(f"refused {card}, of {len(card)} characters")
