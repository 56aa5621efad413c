"""The checksum of all columns of a file: the same that SQL's `measure_file` computes from the table.

A page is 8,192 rows in the order of the file. Its digest is the SHA-256 of the SHA-256 of each column's values, so that
most of the work is done once per column and page, not once per value.
"""

import ctypes
import hashlib
import struct
import sys
from array import array
from itertools import repeat
from typing import Any, Final

PAGE_ROWS: Final = 8192
# Separator between two texts, and the byte for a null.
BETWEEN, NULL = b"\x1f", b"\x1e"
# Bytes from which on a text is replaced by its own SHA-256.
LONG: Final = 2000
UTF8_MOST: Final = 4
# 2000-01-01, the epoch of PostgreSQL, in microseconds and in days since 1970.
EPOCH_MICROSECONDS, EPOCH_DAYS = 946_684_800_000_000, 10_957


class _CArray(ctypes.Structure):
    """The first fields of `struct ArrowArray`, from Arrow's C data interface."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def page_digest(batch: Any) -> bytes:
    """Return the digest of a page of rows."""
    columns = map(batch.column, batch.column_names)
    return hashlib.sha256(b"".join([hashlib.sha256(_content(column)).digest() for column in columns])).digest()


def integers(column: Any) -> list[int | None]:
    """Return the values of a column of integers, instants (microseconds) or dates (days)."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    if DataType.is_timestamp(column.type):
        column = column.cast(DataType.int64())
    elif DataType.is_date32(column.type):
        column = column.cast(DataType.int32())
    if column.null_count:
        found: list[int | None] = column.to_pylist()
        return found
    return _array(column, {16: "h", 32: "i", 64: "q"}[column.type.bit_width]).tolist()


def _content(column: Any) -> bytes:
    """Return all values of a column as PostgreSQL's aggregate joins them."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    kind = column.type
    if column.null_count == len(column):
        is_fixed = DataType.is_primitive(kind) or DataType.is_boolean(kind)
        return (b"" if is_fixed else BETWEEN).join(repeat(NULL, len(column)))
    if DataType.is_timestamp(kind):
        return _numbers(integers(column), "q", EPOCH_MICROSECONDS, column.null_count)
    if DataType.is_date32(kind):
        return _numbers(integers(column), "i", EPOCH_DAYS, column.null_count)
    if DataType.is_boolean(kind):
        return b"".join([NULL if value is None else bytes([value]) for value in column.to_pylist()])
    if DataType.is_integer(kind) or DataType.is_floating(kind):
        signs = {16: "h", 32: "i", 64: "q"} if DataType.is_integer(kind) else {32: "f", 64: "d"}
        code = signs[kind.bit_width]
        if not column.null_count:
            return _big_endian(_array(column, code))
        return _numbers(column.to_pylist(), code, 0, column.null_count)
    return _texts(column)


def _array(column: Any, code: str) -> "array[Any]":
    """Return the numbers of a column without nulls, copied from its buffer: Python objects would cost 0.1 us each."""
    found: array[Any] = array(code)
    # Keeps the buffers alive until they are copied.
    capsule = column.__arrow_c_array__()[1]
    head = _CArray.from_address(_pointer_of(capsule, b"arrow_array"))
    if head.length:
        start = head.buffers[1] + head.offset * found.itemsize
        found.frombytes(ctypes.string_at(start, head.length * found.itemsize))
    return found


def _big_endian(values: "array[Any]") -> bytes:
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def _numbers(values: list[Any], code: str, epoch: int, nulls: int) -> bytes:
    if not nulls:
        return _big_endian(array(code, [value - epoch for value in values]))
    pack = struct.Struct(f">{code}").pack
    return b"".join([NULL if value is None else pack(value - epoch) for value in values])


def _texts(column: Any) -> bytes:
    values = column.to_pylist()
    if column.null_count or isinstance(values[0], bytes) or max(map(len, values)) > LONG // UTF8_MOST:
        return BETWEEN.join(map(_text, values))
    return BETWEEN.decode().join(values).encode()


def _text(value: str | bytes | None) -> bytes:
    if value is None:
        return NULL
    content = value if isinstance(value, bytes) else value.encode()
    return content if len(content) <= LONG else hashlib.sha256(content).hexdigest().encode()
