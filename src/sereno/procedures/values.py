"""Converts JSON strictly into typed values, for databases that convert leniently: MySQL, MariaDB and SQL Server."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from sereno.errors import InvalidArguments
from sereno.procedures.procedure import Parameter, ProcedureSignature

_LENGTH = re.compile(r"\(\s*(\d+)")
_WORDS = re.compile(r"'((?:[^']|'')*)'")
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
# Types with an equivalent in JSON. Other types cannot be passed to a procedure.
KNOWN = frozenset(
    {
        *_BITS, "bool", "boolean", "bit", "year", "decimal", "dec", "numeric", "money", "smallmoney", "float", "real",
        "double", "char", "varchar", "nchar", "nvarchar", "text", "ntext", "tinytext", "mediumtext", "longtext",
        "sysname", "date", "datetime", "datetime2", "smalldatetime", "datetimeoffset", "timestamp", "time", "json",
        "enum", "set", "uniqueidentifier", "uuid", "inet4", "inet6",
    }
)  # fmt: skip


def word_of(written: str) -> str:
    """Return the first word of a type: `decimal(10,2) unsigned` is a decimal."""
    found = re.match(r"\w+", written.strip().lower())
    return found[0] if found else ""


def converted(
    signature: ProcedureSignature, params: Mapping[str, Any], *, unsigned_bytes: bool = False
) -> dict[str, Any]:
    """Return the values as Python types. Raises InvalidArguments. `unsigned_bytes`: a tinyint is 0 to 255."""
    values = {}
    for each in signature.inputs:
        if each.name in params:
            try:
                values[each.name] = _value(each, params[each.name], unsigned_bytes)
            except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
                raise InvalidArguments(
                    f"{signature.full_name}: {each.name}: {params[each.name]!r:.60} is not a {each.type}"
                    + (f": {error}" if str(error) and not isinstance(error, InvalidOperation) else "")
                ) from None
    return values


def _value(parameter: Parameter, value: Any, unsigned_bytes: bool) -> Any:
    word = word_of(parameter.type)
    if value is None:
        return None
    # MariaDB stores JSON as a long text.
    if word == "json" or (word == "longtext" and isinstance(value, list | dict)):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | dict):
        raise TypeError("it is not a single value")
    if word in _BITS:
        return _whole(parameter, word, value, unsigned_bytes)
    return _READERS.get(word, _unknown)(parameter.type, value)


def _whole(parameter: Parameter, word: str, value: Any, unsigned_bytes: bool) -> int:
    if isinstance(value, bool):
        number = int(value)
    elif isinstance(value, float) and not value.is_integer():
        raise ValueError("it is not a whole number")
    else:
        number = int(value)
    bits = _BITS[word]
    is_unsigned = "unsigned" in parameter.type.lower() or (unsigned_bytes and word == "tinyint")
    lowest, highest = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not lowest <= number <= highest:
        raise ValueError(f"it is out of range: {lowest} to {highest}")
    return number


def _truth(_: str, value: Any) -> int:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError("write true or false")
    return int(text in _TRUE)


def _bits(written: str, value: Any) -> int:
    found = _LENGTH.search(written)
    if found is None or found[1] == "1":
        return _truth(written, value)
    number = int(value)
    if not 0 <= number < 2 ** int(found[1]):
        raise ValueError("it has too many bits")
    return number


def _year(_: str, value: Any) -> int:
    return date(int(value), 1, 1).year


def _decimal(written: str, value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError("it is not a number")
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError("it is not a number")
    found = re.search(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", written)
    if found:
        digits, scale = int(found[1]), int(found[2] or 0)
        if -number.normalize().as_tuple().exponent > scale:  # type: ignore[operator]  # it is finite
            raise ValueError(f"it has more than {scale} decimal places")
        if abs(number) >= Decimal(10) ** (digits - scale):
            raise ValueError(f"it has more than {digits - scale} digits before the point")
    return number


def _float(_: str, value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("it is not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it is not a number")
    return number


def _text(written: str, value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    found = _LENGTH.search(written)
    if found and len(text) > int(found[1]):
        raise ValueError(f"it is too long: {len(text)} characters")
    return text


def _date(_: str, value: Any) -> date:
    return date.fromisoformat(_string(value))


def _moment(_: str, value: Any) -> datetime:
    found = datetime.fromisoformat(_string(value))
    if found.tzinfo is not None:
        raise ValueError("the type has no time zone: write it without one, such as {fire:%Y-%m-%d %H:%M:%S}")
    return found


def _zoned(_: str, value: Any) -> datetime:
    found = datetime.fromisoformat(_string(value))
    if found.tzinfo is None:
        raise ValueError("it needs a time zone, such as +00:00")
    return found


def _time(_: str, value: Any) -> time:
    return time.fromisoformat(_string(value))


def _one_of(written: str, value: Any) -> str:
    known = [word.replace("''", "'") for word in _WORDS.findall(written)]
    if value not in known:
        raise ValueError(f"use one of {', '.join(known)}")
    return str(value)


def _some_of(written: str, value: Any) -> str:
    for part in filter(None, _string(value).split(",")):
        _one_of(written, part)
    return str(value)


def _uuid(_: str, value: Any) -> str:
    return str(UUID(_string(value)))


def _unknown(written: str, _: Any) -> Any:
    raise TypeError(f"JSON has no equivalent of the type {written}")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is not a text")
    return value


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("bool", "boolean"), _truth),
    **dict.fromkeys(("decimal", "dec", "numeric", "money", "smallmoney"), _decimal),
    **dict.fromkeys(("float", "real", "double"), _float),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "sysname", "inet4", "inet6"), _text),
    **dict.fromkeys(("text", "ntext", "tinytext", "mediumtext", "longtext"), _text),
    **dict.fromkeys(("datetime", "datetime2", "smalldatetime", "timestamp"), _moment),
    **dict.fromkeys(("uniqueidentifier", "uuid"), _uuid),
    "bit": _bits,
    "year": _year,
    "date": _date,
    "datetimeoffset": _zoned,
    "time": _time,
    "enum": _one_of,
    "set": _some_of,
}
