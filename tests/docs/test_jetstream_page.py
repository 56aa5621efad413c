"""The configuration of docs/operate/jetstream.md: servers accept it, and clients reach them with it, encrypted."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sereno import CarrierUnavailable, JetStream
from sereno.carriers.address import carried_queue
from sereno.carriers.local_server import find_program
from sereno.settings import load
from tests.docs.pages import ROOT, blocks, only
from tests.facts import until

PAGE = ROOT / "docs" / "operate" / "jetstream.md"
HOST = "127.0.0.1"


def test_every_setting_of_the_page_is_accepted() -> None:
    shown = [line for block in blocks(PAGE) if block.language == "sh" for line in block.code.splitlines()]
    assert len(shown) == 3
    for line in shown:
        name, _, value = shlex.split(line)[1].partition("=")
        settings, _ = load({}, environment={name: value})
        for queue, address in (settings.carriers or {}).items():
            assert carried_queue(queue, address).name == "clicks"


def certificate(directory: Path) -> None:
    """Write a certificate for this machine, and its key, under the names of the page."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (directory / "server.key").write_bytes(encoded)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[int]:
    """Run one server with the page's configuration, without its cluster; return its port."""
    certificate(tmp_path)
    config = only(PAGE, "conf").replace("/etc/nats/", f"{tmp_path}/").replace("/var/lib/nats", f"{tmp_path}/data")
    with socket.create_server((HOST, 0)) as free:
        port = int(free.getsockname()[1])
    whole = tmp_path / "nats.conf"
    whole.write_text(config)
    subprocess.run([find_program(), "-t", "-c", str(whole)], check=True, capture_output=True)
    begin, end = config.index("cluster {"), config.index("tls {")
    whole.write_text((config[:begin] + config[end:]).replace("0.0.0.0:4222", f"{HOST}:{port}"))
    with (tmp_path / "nats.log").open("wb") as log:
        server = subprocess.Popen([find_program(), "-c", str(whole)], stdout=log, stderr=log)
    try:
        until(lambda: "Server is ready" in (tmp_path / "nats.log").read_text())
        yield port
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
async def test_clients_reach_the_servers_with_a_certificate_and_a_password(
    secured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"jetstream+tls://sereno:change-me@{HOST}:{secured}"
    unknown = carried_queue("clicks", address).carrier
    with pytest.raises(CarrierUnavailable):
        await unknown.connect()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    client = await carried_queue("clicks", address).carrier.connect()
    await client.publish("clicks", b"secret", "d1")
    (message,) = await client.fetch("clicks", 1, 20.0)
    assert message.body == b"secret"
    await message.acknowledge()
    await client.close()
    with pytest.raises(CarrierUnavailable) as refused:
        await JetStream(f"tls://sereno:wrong-password@{HOST}:{secured}").connect()
    assert "wrong-password" not in str(refused.value)


@pytest.mark.slow
def test_one_command_leads_to_a_carried_queue(tmp_path: Path) -> None:
    """As the page prints it: the embedded PostgreSQL, a NATS server and a worker, and jobs from another process."""
    for name in ("clicks.py", "open_pages.py"):
        (tmp_path / name).write_text(only(PAGE, "python", name=name))
    (command,) = re.findall(r"^sereno (run .*--nats)$", PAGE.read_text(), re.MULTILINE)
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            [sys.executable, "-m", "sereno", *shlex.split(command)], cwd=tmp_path, stdout=output, stderr=output
        )
    try:
        until(lambda: "worker started" in log.read_text(), timeout=90.0)
        # The port of the page may be taken on this machine; then the output has another one.
        (setting,) = re.findall(r"export SERENO_CARRIERS='(.*)'", log.read_text())
        environment = {**os.environ, "SERENO_CARRIERS": setting}
        subprocess.run([sys.executable, "open_pages.py"], cwd=tmp_path, env=environment, check=True, timeout=90)
        until(lambda: log.read_text().count(" was opened") == 1001)
    finally:
        service.terminate()
        service.wait(60)
    assert service.returncode == 0
