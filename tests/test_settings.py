"""Settings: invalid values are refused, and secrets are never shown."""

from itertools import product
from pathlib import Path

import pytest

import sereno
from sereno.errors import ConfigurationError
from sereno.settings import LONGEST_PUBLIC_URL, SCHEMA_LENGTH, Settings, load

SECRET = "hunter2" * 5


def test_secrets_are_not_shown() -> None:
    settings = Settings(database_url=f"postgresql://me:{SECRET}@db/x", metrics_token=SECRET, secret=SECRET, grace=3.0)
    for shown in (repr(settings), str(settings), f"{settings}", str(settings.__rich_repr__())):
        assert SECRET not in shown
        assert "grace" in shown
    assert repr(Settings()) == "Settings()"


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="at least 32 characters") as refused:
        load(environment={"SERENO_SECRET": "hunter2"})
    assert "hunter2" not in str(refused.value)
    assert load(environment={"SERENO_SECRET": SECRET})[0].secret == SECRET


def test_a_public_url_is_stored_without_its_last_slash(subtests: pytest.Subtests) -> None:
    for given, stored in [
        ("https://app.example.com", "https://app.example.com"),
        ("https://app.example.com/", "https://app.example.com"),
        ("https://example.com/sereno/", "https://example.com/sereno"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ]:
        with subtests.test(given=given, stored=stored):
            assert load(environment={"SERENO_PUBLIC_URL": given})[0].public_url == stored


INVALID_URLS = [
    "app.example.com",
    "ftp://example.com",
    "https://",
    "https:///path",
    "https://me:pw@example.com",
    "https://example.com/?a=b",
    "https://example.com/#here",
    "https://example.com/a b",
    "https://example.com/>\r\nBcc: eve@example.com",
    "https://exämple.com",
    "https://example.com/" + "a" * LONGEST_PUBLIC_URL,
]


def test_an_invalid_public_url_is_refused(subtests: pytest.Subtests) -> None:
    for given in INVALID_URLS:
        with subtests.test(given=given), pytest.raises(ConfigurationError, match="public_url"):
            Settings(public_url=given)


def test_a_schema_name_that_is_too_long_is_refused() -> None:
    """Other names contain it. PostgreSQL refuses a NOTIFY channel of more than 63 bytes, and truncates other names."""
    assert Settings(schema="s" * SCHEMA_LENGTH).schema == "s" * SCHEMA_LENGTH
    for name in ("s" * (SCHEMA_LENGTH + 1), "s" * 63, "s" * 64):
        with pytest.raises(ConfigurationError, match=f"at most {SCHEMA_LENGTH} characters"):
            Settings(schema=name)


def test_a_misspelt_variable_is_refused(subtests: pytest.Subtests) -> None:
    for variable, message in [
        ("SERENO_DATABSE_URL", "there is no setting SERENO_DATABSE_URL; did you mean SERENO_DATABASE_URL?"),
        ("SERENO_SECRETS_FILE", "there is no setting SERENO_SECRETS_FILE; did you mean SERENO_SECRET?"),
        ("SERENO_XYZZY", "there is no setting SERENO_XYZZY: `sereno config show` lists them"),
    ]:
        with subtests.test(variable=variable), pytest.raises(ConfigurationError) as refused:
            load(environment={variable: "hunter2"})
        assert str(refused.value) == message


def test_variables_of_kubernetes_are_no_settings() -> None:
    """In every pod it sets variables for each service: for one named `sereno` they begin with SERENO_."""
    given = {"SERENO_SERVICE_HOST": "10.0.0.1", "SERENO_PORT": "tcp://10.0.0.1:80", "SERENO_PORT_80_TCP_PROTO": "tcp"}
    assert load(environment=given) == (Settings(), {})
    with pytest.raises(ConfigurationError, match="SERENO_SERVER_PORT was set by Kubernetes"):
        load(environment={"SERENO_SERVER_PORT": "tcp://10.0.0.1:80"})


def test_a_wrong_value_names_its_variable(subtests: pytest.Subtests) -> None:
    for variable, value, message in [
        ("SERENO_LEASE", "abc", "SERENO_LEASE 'abc': expected float, got str"),
        ("SERENO_ROLES", "workr", "SERENO_ROLES ['workr']: invalid enum value 'workr'"),
        ("SERENO_LOG_LEVEL", "loud", "SERENO_LOG_LEVEL 'loud': invalid enum value 'loud'"),
    ]:
        with subtests.test(variable=variable), pytest.raises(ConfigurationError) as refused:
            load(environment={variable: value})
        assert str(refused.value) == message


@pytest.mark.slow
def test_every_wrong_value_of_a_variable_names_the_variable(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Also one of the right type: too small, no queue, no address. What is accepted here is wrong for no setting."""
    wrong = ("-1", "x y\x01", "a=", "€", "9" * 30, "postgres:/x", "1.5.5", "x" * 600)
    messages: dict[str, list[str]] = {}
    for name, value in product(Settings.__struct_fields__, wrong):
        try:
            load(environment={f"SERENO_{name.upper()}": value})
        except ConfigurationError as error:
            messages.setdefault(name, []).append(str(error))
    assert messages.keys() >= {"lease", "queues", "carriers", "shards", "secret", "schema", "notifications_queue"}
    for name, of_name in messages.items():
        with subtests.test(name):
            assert [text for text in of_name if not text.startswith(f"SERENO_{name.upper()}")] == []
    with pytest.raises(ConfigurationError, match=r"SERENO_SECRET_FILE: '.*/none' cannot be read: No such file"):
        load(environment={"SERENO_SECRET_FILE": str(tmp_path / "none")})


def test_the_address_of_a_carrier_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="SERENO_CARRIERS: write a JSON object") as refused:
        load(environment={"SERENO_CARRIERS": '{"clicks": 7, "x": "jetstream://me:hunter2@a"}'})
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(load(environment={"SERENO_CARRIERS": '{"x": "jetstream://me:hunter2@a"}'})[0])


def test_a_file_of_variables_is_not_read_and_new_projects_say_so(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SERENO_SCHEMA=other\n")
    assert load(environment={}, directory=tmp_path) == (Settings(), {})
    readmes = sorted((Path(sereno.__file__).parent / "cli" / "init_files").glob("README*.tmpl"))
    assert readmes
    for readme in readmes:
        text = " ".join(readme.read_text().split())
        assert "load it with `set -a; . ./.env; set +a` (sereno does not read the file" in text, readme.name
