import sys
from types import SimpleNamespace

# The reader's module with the queue of RQ; this page needs its `enqueue` only.
sys.modules["old_queue"] = SimpleNamespace(queue=SimpleNamespace(enqueue=lambda *arguments: None))
# the block of the page
