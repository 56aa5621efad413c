"""Decides when email may be sent without TLS: never with a password, otherwise only where it is explicitly allowed."""

import ipaddress

REMEDY = 'use tls="starttls" (port 587) or tls="tls" (port 465)'


def refusal(peer: object, *, tls: str, allowed: bool, has_password: bool) -> str | None:
    """Return why email may not be sent to this peer over an unencrypted connection; None if it may.

    `peer` is the address of the connected socket, not the configured name.
    """
    if is_loopback(peer):
        if has_password and tls != "none":
            return 'the server offers no TLS for the password: set tls="none" for a server on this machine'
        return None
    if has_password:
        return f"the server offers no TLS, and the password would be sent unencrypted: {REMEDY}"
    if not allowed:
        return (
            "the server offers no TLS, and names and addresses would be sent unencrypted: "
            f"{REMEDY}, or allow_plaintext=True for a relay in a network that you trust"
        )
    return None


def is_loopback(peer: object) -> bool:
    """Return whether a peer, as a socket names it, is this machine."""
    host = peer[0] if isinstance(peer, tuple) and peer else None
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False
