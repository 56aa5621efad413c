"""Style sheets and scripts are compressed and cached by browsers, and no other file can be reached."""

import gzip
from collections.abc import Iterator

import httpx
import pytest

from sereno.server.web.static_files import all_files, assets_hash
from tests.server.api.conftest import Served

TRAVERSALS = [
    "../page_request.py",
    "..%2fpage_request.py",
    "%2e%2e/page_request.py",
    "%2e%2e%2f%2e%2e%2fapplication.py",
    "..\\page_request.py",
    "....//page_request.py",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "sereno.css/../../page_request.py",
    "sereno.css%00.js",
    ".",
    "..",
    "",
    "SERENO.CSS",
    "page_request.py",
]


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30, trust_env=False) as made:
        yield made


@pytest.mark.slow
def test_files_are_cached_for_a_year_and_compressed(client: httpx.Client) -> None:
    for name, file in all_files().items():
        path = f"/static/{assets_hash()}/{name}"
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == file.kind
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == file.content == gzip.decompress(file.packed)
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == file.content


def test_the_path_of_a_file_contains_a_hash(client: httpx.Client) -> None:
    page = client.get("/sign-in").text
    assert f'href="./static/{assets_hash()}/sereno.css"' in page
    # A browser with the page of another version gets the current file.
    assert client.get("/static/000000000000/sereno.css").status_code == 200


def test_no_other_file_can_be_reached(client: httpx.Client, served: Served) -> None:
    for name in TRAVERSALS:
        # Sent as it is, because an HTTP client would normalize the path.
        url = httpx.URL(served.url).copy_with(raw_path=f"/static/{assets_hash()}/{name}".encode())
        answer = client.get(url)
        assert answer.status_code in (404, 405), (name, answer.status_code)
        assert "import" not in answer.text
        assert "root:" not in answer.text


def test_pages_have_no_inline_script_or_style(client: httpx.Client) -> None:
    answer = client.get("/sign-in")
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
