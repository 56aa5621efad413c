"""The last frame of the application's own code is found in a traceback of any Python version."""

from sereno.server.web.monitoring import tracebacks

TEXT = """Traceback (most recent call last):
  File "/srv/app/shop/tasks.py", line 12, in reconcile
    fetch(account)
  File "/srv/app/shop/books.py", line 40, in fetch
    return json.loads(text)
           ^^^^^^^^^^^^^^^^
  File "/opt/python/lib/python3.12/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/srv/app/.venv/lib/python3.12/site-packages/httpx/_models.py", line 1, in json
    raise
ValueError: <script>
"""


def test_the_last_own_frame_is_marked() -> None:
    read = tracebacks.read(TEXT)
    assert read is not None
    assert read.own == ("/srv/app/shop/books.py", 40, "fetch", "return json.loads(text)")
    assert [line.strip() for line, is_own in read.lines if is_own] == [
        'File "/srv/app/shop/books.py", line 40, in fetch',
        "return json.loads(text)",
        "^^^^^^^^^^^^^^^^",
    ]
    assert "\n".join(line for line, _ in read.lines) == TEXT.rstrip()


def test_other_texts_are_shown_unchanged() -> None:
    assert tracebacks.read(None) is None
    assert tracebacks.read(" \n") is None
    read = tracebacks.read("boom\nbang")
    assert read is not None
    assert (read.own, read.lines) == (None, [("boom", False), ("bang", False)])
    long = tracebacks.read("x\n" * 100_000)
    assert long is not None
    assert len(long.lines) == tracebacks.MOST_LINES
