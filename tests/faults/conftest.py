"""The same real worker processes as in the acceptance tests."""

from tests.acceptance.conftest import log, worker

__all__ = ["log", "worker"]
