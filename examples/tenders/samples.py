"""Answers in the shape of mercadopublico.cl: the record of a tender in the API, and its block on the search page."""

import html
from datetime import datetime, timedelta
from typing import Any

Record = dict[str, Any]

WORKS = [
    "Construcción puente peatonal",
    "Reparación techumbre escuela",
    "Luminarias públicas",
    "Raciones alimenticias",
    "Pozo profundo",
    "Ambulancia básica",
    "Parkas de invierno",
]
# As the API spells them: with words around the name, and often with a space at the end.
REGIONS = {
    "Antofagasta": "Región de Antofagasta ",
    "Valparaíso": "Región de Valparaíso ",
    "Metropolitana": "Región Metropolitana de Santiago",
    "Biobío": "Región del Biobío ",
    "Magallanes": "Región de Magallanes y de la Antártica",
}
CATEGORIES = {
    "72141000": "Construcción / Servicios de construcción pesada / Puentes y caminos",
    "43211500": "Tecnología / Equipamiento informático / Computadores",
    "85101600": "Salud / Servicios de cuidado de la salud / Enfermería",
}


def record(
    number: int, now: datetime, *, region: str, amount: object, category: str = "72141000", kind: str = "LE"
) -> Record:
    """Return the details of a tender, as the API has them. A caller may change any field."""
    opens, closes = (
        now.replace(tzinfo=None),
        (now + timedelta(days=10)).replace(hour=15, minute=0, second=0, tzinfo=None),
    )
    title = f"{WORKS[number % len(WORKS)]} & accesorios"
    return {
        "CodigoExterno": f"{1000 + number}-{number}-{kind}{now:%y}",
        "Nombre": title,
        "CodigoEstado": 5,
        "Descripcion": f"La Municipalidad de Prueba {number} requiere: {title}.",
        "FechaCierre": None,
        "Estado": "Publicada",
        "Comprador": {
            "CodigoOrganismo": str(6000 + number),
            "NombreOrganismo": f"I. Municipalidad de Prueba {number}",
            "RutUnidad": "69.000.000-K",
            "CodigoUnidad": str(2000 + number),
            "NombreUnidad": "Departamento de Adquisiciones",
            "DireccionUnidad": f"Plaza de Armas N° {number}",
            "ComunaUnidad": "Prueba",
            "RegionUnidad": REGIONS[region],
        },
        "DiasCierreLicitacion": "10",
        "Informada": 0,
        "CodigoTipo": 1,
        "Tipo": kind,
        "TipoConvocatoria": "1",
        "Moneda": "CLP",
        "Etapas": 1,
        "CantidadReclamos": 12,
        "Fechas": {
            "FechaCreacion": f"{opens:%Y-%m-%d}T00:00:00",
            "FechaCierre": f"{closes:%Y-%m-%dT%H:%M:%S}",
            "FechaPublicacion": f"{opens:%Y-%m-%dT%H:%M:%S}.847",
            "FechaAdjudicacion": None,
            "FechasUsuario": "1900-01-03T00:00:00",
        },
        "Estimacion": 1,
        "VisibilidadMonto": 1,
        "MontoEstimado": amount,
        "Adjudicacion": None,
        "Items": {
            "Cantidad": 1,
            "Listado": [
                {
                    "Correlativo": 1,
                    "CodigoProducto": int(category) + 1,
                    "CodigoCategoria": category,
                    "Categoria": CATEGORIES[category],
                    "NombreProducto": "Producto de prueba",
                    "UnidadMedida": "Unidad",
                    "Cantidad": 1.0,
                    "Adjudicacion": None,
                }
            ],
        },
    }


def listed(of: Record) -> Record:
    """Return the four fields that the list of a day has."""
    closes = (of["Fechas"] or {}).get("FechaCierre")
    return {
        "CodigoExterno": of["CodigoExterno"],
        "Nombre": of["Nombre"],
        "CodigoEstado": of["CodigoEstado"],
        "FechaCierre": closes,
    }


def answer(found: object, count: int, now: datetime) -> Record:
    return {"Cantidad": count, "FechaCreacion": f"{now:%Y-%m-%dT%H:%M:%S}.577", "Version": "v1", "Listado": found}


def results(blocks: list[str], total: int) -> str:
    """Return the fragment of HTML with one page of results."""
    return f"""
<input type="hidden" id="hdnTotalPresupuestoPublico" name="hdnTotalPresupuestoPublico" value="{total}" />
<div><div class="cabecera-resultados margin-bottom-lg row"><div class='col-md-6'>
  <span class='rot-resultado'>Se han encontrado más de</span>
  <strong><span class='n-result'>{total}</span>resultados </strong>
</div></div>
{"".join(blocks)}
</div>
<div class="col-xs-12"><div class='paginador'><ul><li class="current">1</li></ul></div></div>
"""


def block(of: Record) -> str:
    """Return the block of one tender on the search page."""
    published, closes = (_day((of["Fechas"] or {}).get(name)) for name in ("FechaPublicacion", "FechaCierre"))
    state = "Publicada y disponible para ofertar" if of["CodigoEstado"] == 5 else "Cerrada a recibir más ofertas"
    code = _escaped(of["CodigoExterno"])
    buyer = _escaped((of["Comprador"] or {}).get("NombreOrganismo") or "")
    return f"""
<div class="lic-bloq-wrap licitacion-{state.lower()} sombra_hover"><div class="responsive-resultado">
  <div class="lic-bloq-header row margin-bottom-md">
    <div class="col-sm-6 id-licitacion"><strong>ID Licitación:</strong><span class="clearfix"> {code}</span></div>
    <div class="col-sm-6 detalle-lic"><div class="estado-lic">
      <strong><span>{of["Tipo"]}</span></strong><strong><span class="clearfix estado-texto">{state}</span></strong>
    </div></div>
  </div>
  <div class="lic-block-body">
    <div class="col-md-12 row"><a href="#" onclick="$.Busqueda.verFicha('http://www.mercadopublico.cl/')">
      <h2 class="text-weight-light">{_escaped(of["Nombre"])}</h2></a></div>
    <div class="col-md-12 row"><p class="text-weight-light">{_escaped(of["Descripcion"])}</p></div>
    <div class="margin-bottom-md row">
      <div class="monto-dis col-md-4"><p><strong>Monto disponible </strong></p>{_amount(of)}</div>
      <div class="col-md-4">
        <p><strong>Fecha de publicación</strong></p><span class="highlight-text">{published}</span></div>
      <div class="col-md-4">
        <p><strong>Fecha de cierre</strong></p><span class="highlight-text">{closes}</span>
        <span>(En 10 días) </span></div>
    </div>
  </div>
  <div class="lic-bloq-footer"><div class="row rot-resultado">
    <div class="col-md-4"><strong>{buyer}</strong><br /><p>{buyer}</p> </div>
    <div class="col-md-4"><p><strong>Cantidad de compras <br /> efectuadas*</strong></p><span>1224</span></div>
  </div></div>
</div></div>"""


def _amount(of: Record) -> str:
    amount = of["MontoEstimado"]
    if not isinstance(amount, int | float):
        return f'<span class="highlight-text">{_escaped(str(amount or "No público"))}</span>'
    shown = f"{amount:,.0f}".replace(",", ".")
    return f'<span class="highlight-text">$</span><span class="highlight-text campo-numerico-punto-coma">{shown}</span>'


def _day(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment):%d/%m/%Y}" if moment else ""


def _escaped(text: str) -> str:
    """Return the text as the site writes it: letters with accents as numbers."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()
