import sys
from types import SimpleNamespace

# The reader's module with the Celery application; this page needs its decorator only.
_task = SimpleNamespace(delay=lambda *arguments: None)
sys.modules["celery_app"] = SimpleNamespace(celery=SimpleNamespace(task=lambda **options: lambda function: _task))
# the block of the page
