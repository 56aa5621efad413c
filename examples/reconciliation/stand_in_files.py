"""The files and sales of the partner's stand-in: each merchant sells two orders a day, for ever."""

import gzip
from calendar import monthrange
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from reconciliation.report_file import MOST_UNPACKED

HEADER = (
    "competencia;data_fato_gerador;fato_gerador;tipo_lancamento;descricao_lancamento;valor;base_calculo;percentual_taxa;"
    "pedido_associado_ifood;pedido_associado_ifood_curto;data_criacao_pedido_associado;data_repasse_esperada;loja_id;"
    "titulo;impacto_no_repasse;canal_vendas"
)
ORDERS_A_DAY = 2
# In cents: what a customer pays, the partner's commission, what is left; and the fee of a month.
PAID, COMMISSION = 50_00, 6_00
BALANCE = PAID - COMMISSION
FEE = 110_00


def orders(merchant: str, day: str) -> list[str]:
    return [str(uuid5(NAMESPACE_URL, f"{merchant}/{day}/{number}")) for number in range(ORDERS_A_DAY)]


def sales(merchant: str, day: str) -> list[dict[str, Any]]:
    """Return the sales of a day as the partner's API does."""
    return [
        {
            "id": order,
            "shortId": 4000 + number,
            "createdAt": f"{day}T15:23:33.832Z",
            "type": "ORDER",
            "salesChannel": "IFOOD",
            "currentStatus": "CONCLUDED",
            "merchant": {"id": merchant, "timezone": "America/Sao_Paulo"},
            "saleGrossValue": {"bag": 45.0, "deliveryFee": 4.01, "serviceFee": 0.99},
            "billingSummary": {"saleBalance": BALANCE / 100, "billingEntries": []},
        }
        for number, order in enumerate(orders(merchant, day))
    ]


@lru_cache
def report(merchant: str, competence: str, trouble: str = "") -> Sequence[str]:
    """Return the lines of a report without its header. `trouble`: what is wrong with it."""
    return tuple(_lines(merchant, competence, trouble))


def _lines(merchant: str, competence: str, trouble: str) -> Iterator[str]:
    year, month = map(int, competence.split("-"))
    for number in range(1, monthrange(year, month)[1] + 1):
        day = f"{competence}-{number:02}"
        for place, order in enumerate(orders(merchant, day)):
            if trouble == "incomplete" and place == 0:
                continue
            extra = 1_00 if trouble == "overpaid" and place == 0 else 0
            yield _line(merchant, day, "Entrada Financeira", PAID + extra, order)
            yield _line(merchant, day, "Comissão do iFood (entrega iFood)", -COMMISSION, order)
        if trouble == "unknown orders":
            unknown = str(uuid5(NAMESPACE_URL, f"{merchant}/{day}/unknown"))
            yield _line(merchant, day, "Entrada Financeira", PAID, unknown)
    yield _line(merchant, f"{competence}-01", "Mensalidade", -FEE, "")


def _line(merchant: str, day: str, description: str, cents: int, order: str) -> str:
    created = f"{day} 12:23:33" if order else ""
    trigger = "Venda" if order else "Cobrança"
    amount = f"{cents / 100:.2f}"
    values = [day[:7], day, trigger, "Lançamento", description, amount, "", "", order, order[:4], created, day]
    return ";".join([*values, merchant, "", "SIM", "IFOOD"])


def as_file(lines: Sequence[str]) -> bytes:
    return gzip.compress("\n".join([HEADER, *lines, ""]).encode())


def hostile(kind: str, merchant: str, competence: str) -> bytes | None:
    """Return a malicious or invalid file of this kind."""
    good = as_file(report(merchant, competence))
    match kind:
        case "bomb":
            return gzip.compress(bytes(MOST_UNPACKED + 1))
        case "lying-bomb":
            # Its trailer claims ten bytes.
            return gzip.compress(bytes(MOST_UNPACKED + 1))[:-4] + (10).to_bytes(4, "little")
        case "truncated":
            return good[: len(good) // 2]
        case "no-gzip":
            return b'{"error": "try again"}'
        case "no-columns":
            return gzip.compress(b"order,amount\nA-1,12.50\n")
        case "no-numbers":
            return gzip.compress(good_text(good).replace("50.00", "NaN").encode())
        case "other-merchant":
            return as_file(report("another", competence))
        case "other-month":
            return as_file(report(merchant, "2001-01"))
    return None


def good_text(packed: bytes) -> str:
    return gzip.decompress(packed).decode()
