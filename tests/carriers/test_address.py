"""The declaration of a carrier, in code and by the setting: what is accepted, what is refused, and what is shown."""

import pytest

from sereno import CarrierUnavailable, ConfigurationError, JetStream, Sereno
from sereno.carriers.address import carried_queue
from sereno.settings import load

SECRET = "hunter2"  # noqa: S105 - it must not appear anywhere

SERVERS = "JetStream: write its servers as nats://a:4222,nats://b:4222"
FORM = "carriers: write each address as jetstream://a:4222,b:4222?replicas=3, or postgres"


def test_servers_and_options_are_parsed() -> None:
    carried = carried_queue(
        "clicks",
        "jetstream://a:4222,b:4222,c:4222?replicas=3&prefix=eu&direct=true&max_bytes=1000&credentials=/x.creds",
    )
    assert carried.direct
    assert carried.carrier == JetStream(
        "nats://a:4222,nats://b:4222,nats://c:4222", replicas=3, prefix="eu", credentials="/x.creds", max_bytes=1000
    )
    assert carried.carrier.addresses == ["nats://a:4222", "nats://b:4222", "nats://c:4222"]
    assert carried_queue("clicks", "jetstream+tls://[::1]:4222/").carrier.addresses == ["tls://[::1]:4222"]
    assert JetStream("a, tls://b").addresses == ["nats://a", "tls://b"]


def test_wrong_addresses_are_refused(subtests: pytest.Subtests) -> None:
    hostile = {
        "jetstream://a b:4222": SERVERS,
        "jetstream://": SERVERS,
        "jetstream://a:4222,,b:4222": SERVERS,
        "jetstream://a:422222": SERVERS,
        "jetstream://a:4222\nb": SERVERS,
        "jetstream://u:p@@a:4222": SERVERS,
        "jetstream://a/../b": SERVERS,
        "nats://a:4222": FORM,
        "a:4222": FORM,
        "": FORM,
        "jetstream://a?replicas=2": "JetStream: replicas 2 is not possible: 1, 3 or 5",
        "jetstream://a?replicas=three": "carriers: replicas is a number",
        "jetstream://a?replicas=-1": "carriers: replicas is a number",
        "jetstream://a?max_bytes=0": "JetStream: max_bytes must be at least 1",
        "jetstream://a?direct=yes": "carriers: direct is true or false",
        "jetstream://a?prefix=a.b": "JetStream: the prefix 'a.b' has to be letters, digits, '_' or '-'",
        "jetstream://a?prefix=>": "JetStream: the prefix '>' has to be letters, digits, '_' or '-'",
        "jetstream://a?replica=3": (
            "carriers: unknown option 'replica'; there are replicas, prefix, credentials, max_bytes, direct"
        ),
    }
    for url, message in hostile.items():
        with subtests.test(url=url), pytest.raises(ConfigurationError) as refused:
            carried_queue("clicks", url)
        assert str(refused.value) == message
    with pytest.raises(ConfigurationError, match="begins with nats:// or tls://"):
        JetStream("http://a:4222")


def test_a_password_is_never_shown(subtests: pytest.Subtests) -> None:
    carrier = JetStream(f"nats://bob:{SECRET}@a:4222,tls://b:4222")
    assert carrier.description == "a:4222,b:4222"
    assert repr(carrier) == "JetStream('a:4222,b:4222', replicas=1)"
    assert carrier.addresses[0] == f"nats://bob:{SECRET}@a:4222"
    wrong = ("{}a:4222 b", "{}a:bad", "{}a?replicas=2", "{}a?nothing=1", "{}a?direct=2", "{}a,http://b")
    for form in wrong:
        with subtests.test(form=form), pytest.raises(ConfigurationError) as refused:
            carried_queue("clicks", "jetstream://" + form.format(f"bob:{SECRET}@"))
        assert SECRET not in str(refused.value)
    environment = {"SERENO_CARRIERS": f'{{"clicks": "jetstream://bob:{SECRET}@a:4222"'}
    with pytest.raises(ConfigurationError) as malformed:
        load({}, environment=environment)
    assert SECRET not in str(malformed.value)
    assert str(malformed.value).startswith("SERENO_CARRIERS: write a JSON object of queues and addresses")


@pytest.mark.slow
async def test_an_unreachable_carrier_does_not_show_its_password(database_url: str) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(f"nats://bob:{SECRET}@127.0.0.1:9"), direct=True)
    with pytest.raises(CarrierUnavailable) as away:
        await app.registry.carried["clicks"].carrier.connect()
    assert SECRET not in str(away.value)
    assert "127.0.0.1:9" in str(away.value)
    await app.aclose()
