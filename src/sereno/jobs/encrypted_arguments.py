"""Arguments of a task that are stored encrypted: all of them, or those that the task names."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.arguments import Arguments
from sereno.jobs.encryption import KeyRing, encrypted_text
from sereno.jobs.hidden_values import HiddenValues

# msgspec appends the place in the arguments to its message. Only names of parameters and fields are in it.
_PLACE = re.compile(r" - at `(\$[\w.\[\]…]*)`\Z")
# What the decoder raises for bytes that are not a JSON object.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EncryptedArguments(Arguments):
    """Encrypts after the types were checked, and decrypts before. No error contains a value.

    `keys` returns the keys of the process, which may be configured after the task was declared.
    """

    def __init__(
        self,
        task: str,
        function: Callable[..., Any],
        *,
        context: type,
        each: bool,
        encrypt: bool | Sequence[str],
        injected: Collection[str] = (),
        keys: Callable[[], KeyRing],
    ) -> None:
        super().__init__(task, function, context=context, each=each, injected=injected)
        if isinstance(encrypt, str):
            raise ConfigurationError(
                f"task {task}: encrypt is True or a list of arguments, not the text {encrypt!r:.60}"
            )
        chosen = self.names if encrypt is True else tuple(encrypt or ())
        if unknown := set(chosen) - set(self.names):
            raise ConfigurationError(
                f"task {task}: encrypt names {min(unknown)!r:.60}, which is not an argument; "
                f"it has {', '.join(self.names)}"
            )
        self.encrypted = tuple(name for name in self.names if name in chosen)
        self._keys = keys

    @property
    def key_id(self) -> str | None:
        """The id of the key that encrypts; None if this process has no key."""
        return next(iter(self._keys().ids), None)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int) -> bytes:
        return self._with(super().encode(args, kwargs, limit), self._encrypt)

    def encode_json(self, raw: bytes, limit: int) -> bytes:
        """Like `encode`. A value that is encrypted already is decrypted first: it came from a stored job."""
        # What is not an object, the inherited method refuses.
        with suppress(*_UNREADABLE):
            raw = self._with(raw, self._decrypt)
        return super().encode_json(raw, limit)

    def decode(self, raw: msgspec.Raw | bytes) -> tuple[Any, ...]:
        try:
            opened = self._with(bytes(raw), self._decrypt)
        except _UNREADABLE:
            raise self._refusal("its arguments are not one JSON object") from None
        return super().decode(opened)

    def decrypted(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored arguments as plain JSON values; for tests of applications."""
        found: dict[str, Any] = msgspec.json.decode(self._with(msgspec.json.encode(stored), self._decrypt))
        return found

    def hidden_values(self, jobs: Iterable[msgspec.Raw]) -> HiddenValues:
        """Return what must not appear in an error of a call with these arguments."""
        return HiddenValues(value for raw in jobs for value in self._secrets(raw))

    def _secrets(self, raw: msgspec.Raw) -> list[Any]:
        try:
            values = msgspec.json.decode(self._with(bytes(raw), self._decrypt))
        except (InvalidArguments, *_UNREADABLE):
            # They were not decrypted for the handler either.
            return []
        return [values.get(name) for name in self.encrypted]

    def _why(self, error: Exception) -> str:
        """Return where the arguments do not fit. The message itself may contain a value."""
        place = _PLACE.search(str(error))
        where = f", at {place[1]}" if place else ""
        return f"an argument does not have the type of its parameter{where}; values of encrypted tasks are not shown"

    def _unstorable(self, why: str) -> InvalidArguments:
        return self._refusal(why.partition(": ")[0])

    def _with(self, raw: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
        """Return the arguments with the encrypted ones changed."""
        values = _values.decode(raw)
        for name in self.encrypted:
            if name in values:
                values[name] = msgspec.Raw(change(name, bytes(values[name])))
        return msgspec.json.encode(values)

    def _encrypt(self, name: str, raw: bytes) -> bytes:
        return msgspec.json.encode(self._keys().encrypt(raw, self._task, name))

    def _decrypt(self, name: str, raw: bytes) -> bytes:
        text = encrypted_text(msgspec.json.decode(raw))
        # SQL cannot encrypt, so a plain value is accepted; the types are checked as always.
        return raw if text is None else self._keys().decrypt(text, self._task, name)
