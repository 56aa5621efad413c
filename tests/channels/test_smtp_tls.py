"""When email may be sent without TLS."""

from sereno.channels.smtp_tls import is_loopback, refusal

HERE, ELSEWHERE = ("127.0.0.1", 25), ("192.0.2.7", 25)


def test_nothing_is_sent_to_other_machines_without_tls() -> None:
    for tls in ("starttls", "none"):
        assert "names and addresses" in (refusal(ELSEWHERE, tls=tls, allowed=False, has_password=False) or "")
        assert refusal(ELSEWHERE, tls=tls, allowed=True, has_password=False) is None
        assert refusal(HERE, tls=tls, allowed=False, has_password=False) is None


def test_no_password_is_sent_to_other_machines_without_tls() -> None:
    for tls in ("starttls", "none"):
        for allowed in (False, True):
            assert "the password" in (refusal(ELSEWHERE, tls=tls, allowed=allowed, has_password=True) or "")
    assert refusal(HERE, tls="none", allowed=False, has_password=True) is None
    assert "the password" in (refusal(HERE, tls="starttls", allowed=True, has_password=True) or "")


def test_loopback_is_determined_by_the_socket() -> None:
    here: list[object] = [("127.0.0.1", 25), ("127.8.8.8", 25), ("::1", 25, 0, 0)]
    elsewhere: list[object] = [("192.0.2.7", 25), ("fe80::1%eth0", 25, 0, 2), ("localhost", 25), ("::", 25, 0, 0)]
    assert [peer for peer in here if not is_loopback(peer)] == []
    assert [peer for peer in [*elsewhere, (), None, "127.0.0.1"] if is_loopback(peer)] == []
