"""Encryption of arguments and results: AES-256-GCM with named keys, so that keys can be replaced while jobs wait.

An encrypted value is stored as {"$encrypted": "KEY:BASE64"}: the id of the key, then nonce, ciphertext and tag. The
associated data is the name of the task and of the argument, so that no value can be moved to another one; a result has
the name `RESULT`, which no argument can have.
"""

import base64
import binascii
import os
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from sereno.errors import ConfigurationError, InvalidArguments

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# The only name in the object that stands for an encrypted value.
MARK = "$encrypted"
# Stands for the name of an argument where a result is encrypted.
RESULT = "$result"
# Bytes: of a key (AES-256), of a nonce (random, as SP 800-38D recommends), of the tag at the end.
KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class KeyRing:
    """The keys of a process: the first one encrypts, all decrypt."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._keys = keys
        self._ciphers: dict[str, AESGCM] = {}

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._keys)}>"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def encrypt(self, raw: bytes, task: str, argument: str) -> dict[str, str]:
        """Return the encrypted form of a JSON value."""
        key = next(iter(self._keys), None)
        if key is None:
            raise ConfigurationError(
                f"task {task}: its {_what(argument)} is encrypted, and there is no key: "
                "create one with `sereno key new`, and set SERENO_ENCRYPTION_KEYS"
            )
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(key).encrypt(nonce, raw, _associated(task, argument))
        return {MARK: f"{key}:{base64.b64encode(nonce + sealed).decode()}"}

    def decrypt(self, text: str, task: str, argument: str) -> bytes:
        """Return the JSON value of an encrypted text, or raise InvalidArguments. No message contains a value."""
        refused = _cryptography()[1]
        key, _, encoded = text.partition(":")
        if key not in self._keys:
            raise InvalidArguments(
                f"task {task}: its {_what(argument)} is encrypted with the key {key!r:.50}, "
                "which is not among the encryption_keys of this process"
            )
        try:
            # Too short for a tag, it does not decrypt either.
            data = base64.b64decode(encoded, validate=True).ljust(NONCE_BYTES + TAG_BYTES, b"\x00")
            return self._cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _associated(task, argument))
        except (refused, binascii.Error):
            raise InvalidArguments(
                f"task {task}: its {_what(argument)} cannot be decrypted with the key {key}: "
                "it was changed, or encrypted for another task or argument, or with another key of that name"
            ) from None

    def _cipher(self, key: str) -> "AESGCM":
        found = self._ciphers.get(key)
        if found is None:
            found = self._ciphers[key] = _cryptography()[0](self._keys[key])
        return found


@cache
def _cryptography() -> "tuple[type[AESGCM], type[Exception]]":
    """Return the cipher, and the error that it raises for data that it did not encrypt."""
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import, and few processes need it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - the same
    except ImportError:
        raise ConfigurationError(
            "encrypted arguments need the package cryptography: pip install 'sereno[encryption]'"
        ) from None
    return AESGCM, InvalidTag


def _what(argument: str) -> str:
    return "result" if argument == RESULT else f"argument {argument}"


def _associated(task: str, argument: str) -> bytes:
    return b"\x00".join((b"sereno 1", task.encode(), argument.encode()))


def encrypted_text(value: Any) -> str | None:
    """Return the text of an encrypted value; None for any other value."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(text := value.get(MARK), str):
        return text
    return None


def key_of(arguments: dict[str, Any]) -> str | None:
    """Return the id of the key with which a value of these arguments is encrypted; None if none is."""
    for value in arguments.values():
        if (text := encrypted_text(value)) is not None and _KEY_ID.fullmatch(key := text.partition(":")[0]):
            return key
    return None


def new_key(key_id: str) -> str:
    """Return a new random key, as the setting `encryption_keys` lists it."""
    _check_id(key_id)
    return f"{key_id}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"


def key_ring(keys: Sequence[str] | None) -> KeyRing:
    """Return the keys of the setting `encryption_keys`: `ID:BASE64` each."""
    return _ring(tuple(keys or ()))


@lru_cache(maxsize=8)
def _ring(keys: tuple[str, ...]) -> KeyRing:
    found: dict[str, bytes] = {}
    for place, text in enumerate(keys, 1):
        key, separator, encoded = text.partition(":")
        if not separator:
            # The text is not shown: it may be the key itself.
            raise ConfigurationError(
                f"encryption_keys: entry {place} has no id: write ID:BASE64, as `sereno key new` does"
            )
        _check_id(key)
        try:
            secret = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise ConfigurationError(f"encryption_keys: the key {key} is not {KEY_BYTES} bytes in base64")
        if key in found:
            raise ConfigurationError(f"encryption_keys: there are two keys with the id {key}")
        found[key] = secret
    return KeyRing(found)


def _check_id(key: str) -> None:
    if not _KEY_ID.fullmatch(key):
        raise ConfigurationError(
            "encryption_keys: the id of a key has 1 to 40 letters, digits, '_', '-' and '.', such as 2026b"
        )
