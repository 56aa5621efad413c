"""Encrypted arguments: ciphertext in every table, plain values only in the handler."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
import pytest

from sereno import ConfigurationError, Every, InvalidArguments, Limit, Sereno
from sereno.jobs.encryption import MARK, key_of, key_ring, new_key
from sereno.jobs.job import JobOptions
from sereno.monitoring.settings import list_settings
from sereno.schedules.bulk_write import unchecked_job
from tests.facts import one

CARD = "4111 1111 1111 1234"
OLD, NEW = new_key("2026a"), new_key("2026b")


def app_with(*keys: str, url: str = "postgresql://nowhere/none") -> Sereno:
    return Sereno(url, encryption_keys=list(keys) or None)


def stored_args(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(raw)
    return found


def test_a_named_argument_is_encrypted_and_the_others_are_not() -> None:
    app = app_with(NEW)

    @app.task(encrypt=["card"])
    def charge(card: str, amount: int) -> None: ...

    job = charge.job(CARD, 5)
    args = stored_args(job.args)
    assert args["amount"] == 5
    assert args["card"].keys() == {MARK}
    assert args["card"][MARK].startswith("2026b:")
    assert CARD.encode() not in job.args
    assert CARD not in repr(job)
    assert job.requires == b'{"key":"2026b"}'
    assert charge.definition.arguments.decode(job.args) == (CARD, 5)


def test_with_true_every_argument_is_encrypted() -> None:
    app = app_with(NEW)

    @dataclass
    class Payment:
        card: str
        amount: int

    @app.task(encrypt=True, version=3)
    def charge(payment: Payment, note: str = "none") -> None: ...

    job = charge.job(Payment(CARD, 5))
    assert {name: list(value) for name, value in stored_args(job.args).items()} == {"payment": [MARK]}
    assert job.requires == b'{"version":3,"key":"2026b"}'
    assert charge.definition.arguments.decode(job.args) == (Payment(CARD, 5), "none")


def test_an_item_of_a_batch_is_encrypted() -> None:
    app = app_with(NEW)

    @app.task(encrypt=True, batch=10)
    def charge(cards: list[str]) -> None: ...

    job = charge.job(CARD)
    assert CARD.encode() not in job.args
    assert charge.definition.arguments.decode(job.args) == (CARD,)


def test_equal_values_have_different_ciphertexts() -> None:
    app = app_with(NEW)

    @app.task(encrypt=True)
    def charge(card: str) -> None: ...

    assert len({charge.job(CARD).args for _ in range(100)}) == 100


def test_a_ciphertext_cannot_be_moved_or_changed() -> None:
    app = app_with(NEW)

    @app.task(encrypt=True)
    def charge(card: str, code: str) -> None: ...

    @app.task(encrypt=True)
    def refund(card: str, code: str) -> None: ...

    args = stored_args(charge.job(CARD, "123").args)
    key, _, text = args["card"][MARK].partition(":")
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    changed = {MARK: f"{key}:{base64.b64encode(bytes(data)).decode()}"}
    short = {MARK: f"{key}:{base64.b64encode(b'short').decode()}"}
    for task, given in [
        (charge, {"card": args["code"], "code": args["card"]}),
        (refund, args),
        (charge, args | {"card": changed}),
        (charge, args | {"card": short}),
        (charge, args | {"card": {MARK: f"{key}:***"}}),
    ]:
        with pytest.raises(InvalidArguments, match="cannot be decrypted"):
            task.definition.arguments.decode(json.dumps(given).encode())


def test_the_first_key_encrypts_and_all_keys_decrypt() -> None:
    before, between, after = app_with(OLD), app_with(NEW, OLD), app_with(NEW)
    tasks = []
    for app in (before, between, after):

        @app.task(encrypt=True)
        def charge(card: str) -> None: ...

        tasks.append(charge)
    old, new = tasks[0].job(CARD), tasks[1].job(CARD)
    assert [key_of(stored_args(job.args)) for job in (old, new)] == ["2026a", "2026b"]
    assert tasks[1].definition.arguments.decode(old.args) == (CARD,)
    assert tasks[2].definition.arguments.decode(new.args) == (CARD,)
    with pytest.raises(InvalidArguments, match="key '2026a', which is not among the encryption_keys"):
        tasks[2].definition.arguments.decode(old.args)


def test_a_plain_value_is_accepted_because_sql_cannot_encrypt() -> None:
    app = app_with(NEW)

    @app.task(encrypt=True)
    def charge(card: str) -> None: ...

    assert charge.definition.arguments.decode(b'{"card": "plain"}') == ("plain",)


def test_without_a_key_nothing_is_enqueued() -> None:
    app = app_with()

    @app.task(encrypt=["card"])
    def charge(card: str) -> None: ...

    with pytest.raises(ConfigurationError, match="there is no key: create one with `sereno key new`"):
        charge.job(CARD)
    with pytest.raises(ConfigurationError, match="there is no key"):
        app.new_job("charge", json.dumps({"card": CARD}).encode(), JobOptions())


def test_arguments_from_http_and_the_command_line_are_encrypted() -> None:
    app = app_with(NEW, OLD)

    @app.task(encrypt=["card"])
    def charge(card: str, amount: int) -> None: ...

    job = app.new_job("charge", json.dumps({"card": CARD, "amount": 1}).encode(), JobOptions())
    assert CARD.encode() not in job.args
    assert job.requires == b'{"key":"2026b"}'


def test_a_retry_with_other_arguments_keeps_the_encrypted_ones() -> None:
    before, app = app_with(OLD), app_with(NEW, OLD)

    @before.task(encrypt=["card"], name="charge")
    def charge_before(card: str, amount: int) -> None: ...

    @app.task(encrypt=["card"])
    def charge(card: str, amount: int) -> None: ...

    shown = stored_args(charge_before.job(CARD, 1).args) | {"amount": 2}
    job = app.new_job("charge", json.dumps(shown).encode(), JobOptions())
    assert key_of(stored_args(job.args)) == "2026b"
    assert charge.definition.arguments.decode(job.args) == (CARD, 2)


def test_no_error_about_arguments_shows_a_value() -> None:
    app = app_with(NEW)

    class Strict:
        @classmethod
        def model_validate(cls, value: Any) -> "Strict":
            raise ValueError(f"refused {value}")

    @app.task(encrypt=True)
    def charge(kind: Literal["visa"], limit: int, model: Strict | None = None) -> None: ...

    wrong: list[dict[str, Any]] = [
        {"kind": CARD, "limit": 1},
        {"kind": "visa", "limit": CARD},
        {"kind": "visa", "limit": 1, "model": CARD},
    ]
    for given in wrong:
        with pytest.raises(InvalidArguments) as raised:
            charge.definition.arguments.encode((), given, 10_000)
        assert CARD not in str(raised.value)
        assert "values of encrypted tasks are not shown" in str(raised.value)
        with pytest.raises(InvalidArguments) as raised:
            charge.definition.arguments.decode(json.dumps(given).encode())
        assert CARD not in str(raised.value)


def test_a_limit_key_cannot_use_an_encrypted_argument() -> None:
    app = app_with(NEW)

    def charge(card: str, account: str) -> None: ...

    with pytest.raises(ConfigurationError, match=r"uses \{card\}, which is encrypted"):
        app.task(encrypt=["card"], concurrency=Limit(1, key="{card}"))(charge)
    task = app.task(encrypt=["card"], concurrency=Limit(1, key="{account}"))(charge)
    with pytest.raises(ConfigurationError, match=r"uses \{card\}, which is encrypted"):
        task.using(concurrency=Limit(1, key="{card}", name="cards"))


def test_a_wrong_declaration_is_refused() -> None:
    app = app_with(NEW)

    def charge(card: str) -> None: ...

    wrong: list[Any] = ["card", ["cards"], ["card", "cvc"]]
    for encrypt in wrong:
        with pytest.raises(ConfigurationError, match="encrypt"):
            app.task(encrypt=encrypt)(charge)


def test_a_wrong_key_is_refused_at_the_start_and_not_shown() -> None:
    secret = NEW.partition(":")[2]
    wrong = [secret, f"a b:{secret}", "2026b:c2hvcnQ=", "2026b:not base64"]
    for key in wrong:
        with pytest.raises(ConfigurationError) as raised:
            app_with(key)
        assert secret not in str(raised.value)
    with pytest.raises(ConfigurationError, match="two keys with the id 2026b"):
        app_with(NEW, NEW)


def test_keys_are_never_shown() -> None:
    app = app_with(NEW, OLD)
    secrets = [key.partition(":")[2] for key in (NEW, OLD)]
    shown = [repr(app.settings), repr(key_ring([NEW, OLD])), repr(list_settings(app.settings, app.setting_sources))]
    assert [secret for secret in secrets for text in shown if secret in text] == []
    assert "2026b" in shown[1]


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERENO_ENCRYPTION_KEYS", f"{NEW}, {OLD}")
    assert key_ring(Sereno("postgresql://nowhere/none").settings.encryption_keys).ids == ("2026b", "2026a")


def test_the_tables_contain_ciphertext_only(database_url: str, connection: psycopg.Connection) -> None:
    app = app_with(NEW, url=database_url)

    @app.task(encrypt=["card"])
    def charge(card: str) -> None: ...

    charge.enqueue(CARD)
    charge.using(unique_key="one").enqueue(CARD)
    app.enqueue_many([charge.job(CARD), charge.job(CARD)])
    assert one(connection, 'select count(*) from sereno.jobs where requires = \'{"key": "2026b"}\'') == 4
    assert one(connection, "select count(*) from sereno.jobs where jobs::text like %s", f"%{CARD}%") == 0
    app.close()


def test_a_schedule_stores_ciphertext_and_its_key(database_url: str, connection: psycopg.Connection) -> None:
    app = app_with(NEW, url=database_url)

    @app.task(encrypt=["card"])
    def charge(card: str) -> None: ...

    app.schedules.upsert("monthly", charge.job(CARD), Every("30d"))
    exported = app.schedules.get("monthly").args
    assert key_of(exported) == "2026b"
    app.schedules.run("monthly")
    assert connection.execute("select requires from sereno.jobs").fetchall() == [({"key": "2026b"},)]
    assert one(connection, "select count(*) from sereno.schedules where schedules::text like %s", f"%{CARD}%") == 0
    # Imported without the application: the values stay encrypted, and the jobs still need the key.
    imported = unchecked_job("charge", json.dumps(exported).encode(), JobOptions())
    assert (stored_args(imported.args), imported.requires) == (exported, b'{"key":"2026b"}')
    assert unchecked_job("charge", b'{"card": {"$encrypted": "no key id"}}', JobOptions()).requires is None
    app.close()
