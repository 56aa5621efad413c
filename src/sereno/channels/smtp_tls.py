"""When mail may travel without TLS: never with a password, and elsewhere only where it was allowed by name."""

import ipaddress

REMEDY = 'use tls="starttls" (port 587) or tls="tls" (port 465)'


def refusal(peer: object, *, tls: str, allowed: bool, has_password: bool) -> str | None:
    """Why nothing may be sent to this peer over an unencrypted connection; None where it may.

    `peer` is the address that the socket is connected to, not the name that was asked for.
    """
    if is_loopback(peer):
        if has_password and tls != "none":
            return 'the server offers no TLS for the password: say tls="none" for a server on this machine'
        return None
    if has_password:
        return f"the server offers no TLS, and a password would travel unencrypted: {REMEDY}"
    if not allowed:
        return (
            "the server offers no TLS, and names and addresses of people would travel unencrypted: "
            f"{REMEDY}, or allow_plaintext=True for a relay in a network that you trust"
        )
    return None


def is_loopback(peer: object) -> bool:
    """Whether a peer, as a socket names it, is this machine."""
    host = peer[0] if isinstance(peer, tuple) and peer else None
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False
