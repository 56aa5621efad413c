"""The checksum of all columns of a file: the same that SQL's `measure_file` computes from the table.

A page is 8,192 rows in the order of the file. Its digest is the SHA-256 of the SHA-256 of each column's values, so that
most of the work is done once per column and page, not once per value.
"""

import ctypes
import hashlib
import io
import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

PAGE_ROWS: Final = 8192
# Separator between two texts, and the byte for a null.
BETWEEN, NULL = b"\x1f", b"\x1e"
# Bytes from which on a text is replaced by its own SHA-256.
LONG: Final = 2000
UTF8_MOST: Final = 4
# Quote of the CSV writer: a text that contains it, or an end of line, is joined in Python.
QUOTE: Final = "\x1d"
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


def keys_text(batch: Any, key_columns: Sequence[str]) -> str:
    """Return the keys of all rows, one per line, as SQL's `archive_key` writes them."""
    columns = [_as_integers(batch.column(name)) for name in key_columns]
    if not any(column.null_count for column in columns):
        lines = _lines(columns)
        if lines is not None:
            return lines.decode()
    texts = [map(str, column.to_pylist()) for column in columns]
    return "\n".join(map("\t".join, zip(*texts, strict=True)))


def _as_integers(column: Any) -> Any:
    """Return instants as microseconds and dates as days, and any other column as it is."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    if DataType.is_timestamp(column.type):
        return column.cast(DataType.int64())
    return column.cast(DataType.int32()) if DataType.is_date32(column.type) else column


def _lines(columns: Sequence[Any]) -> bytes | None:
    """Return integers or texts, one row per line; None if a text was quoted. Python objects would be slower."""
    from arro3.core import RecordBatch  # noqa: PLC0415 - heavy, and optional
    from arro3.io import write_csv  # noqa: PLC0415 - as above

    batch = RecordBatch.from_arrays(list(columns), names=[str(number) for number in range(len(columns))])
    written = io.BytesIO()
    write_csv(batch, written, header=False, delimiter="\t", quote=QUOTE, null=NULL.decode())
    lines = written.getvalue()
    return None if QUOTE.encode() in lines else lines[:-1]


def _content(column: Any) -> bytes:
    """Return all values of a column as PostgreSQL's aggregate joins them."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    kind = column.type
    if column.null_count == len(column):
        is_fixed = DataType.is_primitive(kind) or DataType.is_boolean(kind)
        return NULL * len(column) if is_fixed else ((NULL + BETWEEN) * len(column))[:-1]
    if DataType.is_timestamp(kind):
        return _numbers(_as_integers(column), "q", EPOCH_MICROSECONDS)
    if DataType.is_date32(kind):
        return _numbers(_as_integers(column), "i", EPOCH_DAYS)
    if DataType.is_boolean(kind):
        return b"".join([NULL if value is None else bytes([value]) for value in column.to_pylist()])
    if DataType.is_integer(kind) or DataType.is_floating(kind):
        signs = {16: "h", 32: "i", 64: "q"} if DataType.is_integer(kind) else {32: "f", 64: "d"}
        return _numbers(column, signs[kind.bit_width], 0)
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


def _numbers(column: Any, code: str, epoch: int) -> bytes:
    if column.null_count:
        pack = struct.Struct(f">{code}").pack
        return b"".join([NULL if value is None else pack(value - epoch) for value in column.to_pylist()])
    values = _array(column, code)
    if epoch:
        values = array(code, add_to_each(values.tobytes(), values.itemsize, -epoch))
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def add_to_each(values: bytes, size: int, summand: int) -> bytes:
    """Add a number to each integer of `size` bytes, in the byte order of this machine; they wrap around.

    They are added as one large integer, 0.03 us per value, whose sign bits are kept apart so that nothing is carried.
    """
    signs, others, summands = _masks(len(values) // size, size, summand)
    all_values = int.from_bytes(values, sys.byteorder)
    total = ((all_values & others) + (summands & others)) ^ ((all_values ^ summands) & signs)
    return total.to_bytes(len(values), sys.byteorder)


@lru_cache(maxsize=32)
def _masks(count: int, size: int, summand: int) -> tuple[int, int, int]:
    """Return the sign bit, the other bits, and the summand, each repeated `count` times."""
    sign = 1 << (8 * size - 1)
    numbers = (sign, sign - 1, summand % (2 * sign))
    signs, others, summands = (int.from_bytes(number.to_bytes(size, "big") * count, "big") for number in numbers)
    return signs, others, summands


def _texts(column: Any) -> bytes:
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    if DataType.is_string(column.type):
        lines = _lines([column])
        if lines is not None and not _may_be_long(lines):
            return lines.replace(b"\n", BETWEEN)
    values = column.to_pylist()
    if column.null_count or isinstance(values[0], bytes) or max(map(len, values)) > LONG // UTF8_MOST:
        return BETWEEN.join(map(_text, values))
    return BETWEEN.decode().join(values).encode()


def _may_be_long(lines: bytes) -> bool:
    """Return whether a line may be long: such a line fills at least one of these ranges."""
    step = LONG // 2
    return any(lines.find(b"\n", start, start + step) < 0 for start in range(0, len(lines) - step, step))


def _text(value: str | bytes | None) -> bytes:
    if value is None:
        return NULL
    content = value if isinstance(value, bytes) else value.encode()
    return content if len(content) <= LONG else hashlib.sha256(content).hexdigest().encode()
