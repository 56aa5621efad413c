"""Which requests may be answered from a standby, and what a standby is known to have."""

import pytest

from sereno import ConfigurationError, Sereno
from sereno.server import asgi
from sereno.server.shared.standby import ReplayedPositions, may_use_standby


def test_pages_and_lists_may_be_read_from_a_standby(subtests: pytest.Subtests) -> None:
    for method, path, headers, expected in (
        ("GET", "/jobs", {}, True),
        ("HEAD", "/", {}, True),
        ("GET", "/api/v1/jobs", {}, True),
        ("GET", "/api/v1/status", {}, True),
        ("POST", "/api/v1/jobs", {}, False),
        # A single job may be newer than the standby.
        ("GET", "/api/v1/jobs/7", {}, False),
        ("GET", "/api/v1/inbox", {}, False),
        # These are about the primary.
        ("GET", "/api/v1/doctor", {}, False),
        ("GET", "/readyz", {}, False),
        ("GET", "/metrics", {}, False),
        ("GET", "/autoscale", {}, False),
        # A change of this user came just before.
        ("GET", "/jobs", {b"x-sereno-live": b"changed"}, False),
        ("GET", "/jobs", {b"cookie": b"sereno_lang=en; sereno_changed=1"}, False),
        ("GET", "/jobs", {b"cookie": b"\xff; sereno_changed=1"}, False),
    ):
        with subtests.test(method=method, path=path, headers=headers):
            scope = {"type": "http", "method": method, "path": path, "headers": list(headers.items())}
            assert may_use_standby(scope) is expected
            below = scope | {"path": f"/mounted{path}", "root_path": "/mounted"}
            assert may_use_standby(below) is expected


def test_a_standby_is_complete_up_to_the_last_position_that_it_has_replayed() -> None:
    positions = ReplayedPositions()
    positions.add(1.0, 100)
    positions.add(2.0, 200)
    positions.add(3.0, 300)
    assert not positions.replayed(99)
    assert positions.complete_at is None
    assert not positions.replayed(250)
    assert positions.complete_at == 2.0
    assert positions.replayed(300)
    assert positions.complete_at == 3.0


def test_a_wrong_read_url_is_refused_without_its_password(app: Sereno) -> None:
    app.override(read_url="postgresql://me:hunter2@db:no-port/shop?nonsense")
    with pytest.raises(ConfigurationError, match="read_url is not a valid address") as refusal:
        asgi(app)
    assert "hunter2" not in str(refusal.value)
