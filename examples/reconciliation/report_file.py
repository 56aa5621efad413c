"""Reads the partner's file: gzip, then CSV with semicolons. The content is untrusted."""

import csv
import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

from reconciliation.errors import BadReport

# Bytes. A busy month has some 10 MB; the size in a gzip trailer may be forged.
MOST_UNPACKED = 64_000_000
MOST_AMOUNT = Decimal(10) ** 12
LONGEST_TEXT = 200
# Columns that are read, of some thirty.
COLUMNS = (
    "competencia",
    "fato_gerador",
    "descricao_lancamento",
    "valor",
    "pedido_associado_ifood",
    "data_criacao_pedido_associado",
    "loja_id",
    "impacto_no_repasse",
)
# A file without entries, for a month in which nothing happened.
NO_ENTRIES = ";".join(COLUMNS).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a credit or a debit. `counts`: whether it changes what the partner pays out."""

    order_id: str | None
    order_day: date | None
    trigger: str
    description: str
    amount: Decimal
    counts: bool


def unpack(packed: bytes) -> bytes:
    """Return the content of a gzip file, whose size is counted while it is unpacked."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadReport(f"not a readable gzip file: {type(error).__name__}") from None
    if len(content) > MOST_UNPACKED:
        raise BadReport(f"more than {MOST_UNPACKED:,} bytes come out of {len(packed):,}")
    return content


def read(content: bytes, competence: str, merchant: str) -> list[Entry]:
    """Return the entries of a file of this month and merchant, or raise BadReport."""
    try:
        reader = csv.DictReader(io.StringIO(_text(content), newline=""), delimiter=";", strict=True)
        missing = sorted(set(COLUMNS) - set(reader.fieldnames or ()))
        if missing:
            raise BadReport(f"columns are missing: {', '.join(missing)}")
        entries: list[Entry] = []
        for row in reader:
            _check_belongs(row, competence, merchant)
            entries.append(_entry(row))
    except (UnicodeDecodeError, csv.Error, InvalidOperation, ValueError, TypeError, AttributeError) as error:
        raise BadReport(f"line {reader.line_num}: not readable: {type(error).__name__}") from None
    return entries


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _check_belongs(row: Mapping[str, str], competence: str, merchant: str) -> None:
    """Refuse entries of another month or merchant: they would be in the wrong books."""
    if None in row or None in row.values():
        raise ValueError("more or fewer columns than the first line")
    if not row["competencia"].startswith(competence):
        raise BadReport(f"the file has entries of {row['competencia']!r:.40}, and {competence} was requested")
    if row["loja_id"] not in {merchant, ""}:
        raise BadReport(f"the file has entries of the merchant {row['loja_id']!r:.60}")


def _entry(row: Mapping[str, str]) -> Entry:
    day = row["data_criacao_pedido_associado"][:10]
    amount = _amount(row["valor"])
    if not (amount.is_finite() and abs(amount) < MOST_AMOUNT):
        raise ValueError("an amount out of range")
    return Entry(
        order_id=_word(row["pedido_associado_ifood"]) or None,
        order_day=date.fromisoformat(day) if day else None,
        trigger=_word(row["fato_gerador"]),
        description=_word(row["descricao_lancamento"]),
        amount=amount,
        counts=row["impacto_no_repasse"].strip().upper() == "SIM",
    )


def _word(text: str) -> str:
    if "\x00" in text or len(text) > LONGEST_TEXT:
        raise ValueError("a text that is too long, or has a NUL")
    return text.strip()


def _amount(text: str) -> Decimal:
    """Parse 1234.56, 1234,56 and 1.234,56: the last separator is that of the decimals."""
    point, comma = text.rfind("."), text.rfind(",")
    if comma > point:
        text = text.replace(".", "").replace(",", ".")
    elif point > comma >= 0:
        text = text.replace(",", "")
    return Decimal(text.strip())
