"""Costs of templates: every loop, call, filter, comparison and copy is charged to a budget of steps and time.

Imported only where templates are used, with the sandbox.
"""

import functools
import re
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from string import Formatter
from typing import Any, Literal

from jinja2 import Environment, Template, filters, pass_environment, pass_eval_context, tests
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Undefined

# Longest text in characters that a template can build, including intermediate values.
LARGEST = 1024 * 1024
MOST_ITEMS = 50_000
# Largest integer in bits.
MOST_BITS = 4096
# Iterations, calls and filters of one template; a copy is charged by its size.
MOST_STEPS = 100_000
ITEMS_A_STEP, LETTERS_A_STEP = 10, 256
LONGEST_SECONDS = 1.0
# Largest width of a padded field, indent of a line, and precision of a rounded number.
WIDEST, DEEPEST, MOST_DIGITS = 1000, 100, 20
# Longest input of slow filters, in characters.
LONGEST_READ = 64 * 1024
# Limits of searches whose time grows with both texts: characters to strip, and a separator searched from the end.
MOST_STRIPPED, LONGEST_SEPARATOR = 100, 1000
# Characters of the longest float without an exponent, and of one character escaped by repr().
LONGEST_FLOAT, LONGEST_ESCAPE = 320, 10

FILTER_NAMES = (
    "abs capitalize center count d default dictsort e escape filesizeformat first float forceescape format groupby "
    "indent int items join last length list lower map max min reject rejectattr replace reverse round safe select "
    "selectattr sort string striptags sum title tojson trim truncate unique upper urlencode wordcount wordwrap"
)
# A width or precision of many digits, or given as an argument; and keys that hide a bracket.
_WIDE_PRINTF = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(?:\d{0,3}\.)?(?:\*|\d{4,})|%\([^()]*\(")
_PRINTF = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\d{0,3})(?:\.(\d{0,3}))?[hlL]?([a-zA-Z]?)")
_WIDE_SPEC = re.compile(r"\d{4,}|[{}]")
_NUMBER = re.compile(r"\d+")


class BudgetExhausted(SecurityError):  # noqa: N818 - named for what happened
    """The steps or the time of the template are used up."""


class RenderBudget:
    """The budget of one render. `sibling`: returns a template to include, by name."""

    def __init__(self, sibling: Callable[[str], Template]) -> None:
        self.sibling = sibling
        self._steps = MOST_STEPS
        self._deadline = time.monotonic() + LONGEST_SECONDS

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise BudgetExhausted(f"it does too much: more than {MOST_STEPS:,} steps")
        if time.monotonic() > self._deadline:
            raise BudgetExhausted(f"it takes too long: more than {LONGEST_SECONDS:g} s")


_budget: ContextVar[RenderBudget | None] = ContextVar("budget", default=None)


def spend(steps: int = 1) -> None:
    budget = _budget.get()
    if budget is None:
        # The compiler tries to evaluate constant expressions. Only a render may spend.
        raise SecurityError("only possible while rendering")
    budget.spend(steps)


def sibling_of_this_render(name: str) -> Template:
    """Return a template to include."""
    budget = _budget.get()
    assert budget is not None
    return budget.sibling(name)


def run(template: Template, context: Mapping[str, Any], sibling: Callable[[str], Template]) -> str:
    """Render with a new budget; exceptions are not wrapped."""
    token = _budget.set(RenderBudget(sibling))
    try:
        return template.render(context)
    finally:
        _budget.reset(token)


# Sizes


def weigh(value: Any) -> int:
    """Return the characters of a plain value and all that it contains. SecurityError if too large, or not plain."""
    letters, items, left = 0, 0, [value]
    while left:
        one = left.pop()
        match one:
            case str():
                letters += len(one)
            case None | bool() | float() | range():
                letters += 8
            case Undefined():
                # Its text is the error message.
                letters += len(str(one))
            case int():
                if one.bit_length() > MOST_BITS:
                    raise SecurityError("a number is too large")
                letters += one.bit_length() // 3
            case list() | tuple():
                items += len(one)
                left.extend(one if items <= MOST_ITEMS else ())
            case dict():
                items += 2 * len(one)
                left.extend((*one.keys(), *one.values()) if items <= MOST_ITEMS else ())
            case _:
                raise SecurityError(f"a {type(one).__name__} cannot be used here")
        if letters > LARGEST or items > MOST_ITEMS:
            raise SecurityError(f"it is too large: more than {LARGEST:,} characters or {MOST_ITEMS:,} items")
    spend(1 + items // ITEMS_A_STEP + letters // LETTERS_A_STEP)
    return letters


def taken(value: Any) -> Any:
    """Charge the result of a call or filter: at once, or item by item."""
    if isinstance(value, str | list | tuple | dict | int):
        weigh(value)
    elif isinstance(value, Iterator):
        return walk(value)
    return value


def walk(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        spend()
        yield item


def pay(value: Any) -> Any:
    """Charge an operand, and return it: comparing, searching or hashing takes time in proportion to its size."""
    match value:
        case str():
            if len(value) >= LETTERS_A_STEP:
                spend(len(value) // LETTERS_A_STEP)
        case list() | tuple() | dict():
            weigh(value)
        case range() | KeysView() | ValuesView() | ItemsView():
            spend(1 + len(value) // ITEMS_A_STEP)
    return value


def sliced(value: Any, cut: slice) -> Any:
    """Slice a text or a list, charged before it is copied."""
    if isinstance(value, str | list | tuple):
        length = len(range(*cut.indices(len(value))))
        spend(1 + length // (LETTERS_A_STEP if isinstance(value, str) else ITEMS_A_STEP))
    return value[cut]


def pay_for_method(owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Charge a method of a text or list, and check its arguments."""
    if isinstance(owner, str | list | tuple):
        pay(owner)
    given = args[0] if args and isinstance(args[0], str) else ""
    if name in ("strip", "lstrip", "rstrip"):
        check_stripped(given)
    elif name in ("rsplit", "rpartition") and len(given) > LONGEST_SEPARATOR:
        raise SecurityError(f"a separator has at most {LONGEST_SEPARATOR:,} characters")


def check_stripped(characters: str) -> None:
    if len(characters) > MOST_STRIPPED:
        raise SecurityError(f"at most {MOST_STRIPPED:,} characters can be stripped")


def fits(size: int) -> None:
    if size > LARGEST:
        raise SecurityError(f"the text becomes too large: more than {LARGEST:,} characters")


def _most(what: str, value: int, most: int) -> int:
    if not isinstance(value, int) or abs(value) > most:
        raise SecurityError(f"{what} must be a whole number of at most {most:,}")
    return value


# Filters


def check_printf(text: str, values: Any) -> None:
    """Check that the result of %-formatting has a reasonable size."""
    if _WIDE_PRINTF.search(text):
        raise SecurityError(f"a width in a format must be a plain number of at most {WIDEST - 1}")
    spend(1 + text.count("%") + len(text) // LETTERS_A_STEP)
    weight, size = weigh(values), len(text)
    for width, precision, kind in _PRINTF.findall(text):
        size += int(width or 0) + int(precision or 0) + weight * (LONGEST_ESCAPE if kind in "ra" else 1)
        size += LONGEST_FLOAT if kind in "fF" else 0
        fits(size)


def check_format(text: str, values: Any) -> None:
    """Check that the result of str.format has a reasonable size."""
    spend(1 + text.count("{") + len(text) // LETTERS_A_STEP)
    weight, size = weigh(values), len(text)
    for _, name, spec, conversion in Formatter().parse(text):
        if name is None:
            continue
        if _WIDE_SPEC.search(spec or ""):
            raise SecurityError(f"a width in a format must be a plain number of at most {WIDEST - 1}")
        # In binary, a number has three times the characters.
        size += weight * (LONGEST_ESCAPE if conversion in ("r", "a") else 3 if spec and spec[-1] == "b" else 1)
        size += sum(map(int, _NUMBER.findall(spec or ""))) + (LONGEST_FLOAT if spec and spec[-1] in "fF%" else 0)
        fits(size)


def _center(value: Any, width: int = 80) -> str:
    return filters.do_center(value, _most("the width", width, WIDEST))


def _format(value: Any, *args: Any, **named: Any) -> str:
    check_printf(str(value), named or args)
    return filters.do_format(value, *args, **named)


def _indent(s: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    fits(len(str(s)) + str(s).count("\n") * _most("the indent", width, DEEPEST))
    return filters.do_indent(s, width, first, blank)


@pass_eval_context
def _join(context: EvalContext, value: Any, d: str = "", attribute: Any = None) -> Any:
    items = list(walk(value))
    if attribute is not None:
        items = [context.environment.getitem(item, attribute) for item in items]
    fits(weigh(items) + len(items) * len(str(d)))
    return filters.sync_do_join(context, items, d)


@pass_eval_context
def _replace(context: EvalContext, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    fits(len(str(s)) + str(s).count(str(old)) * len(str(new)))
    return filters.do_replace(context, s, old, new, count)


def _round(value: float, precision: int = 0, method: Literal["common", "ceil", "floor"] = "common") -> float:
    return filters.do_round(value, _most("the precision", precision, MOST_DIGITS), method)


def _striptags(value: Any) -> str:
    _most("the length", len(str(value)), LONGEST_READ)
    return filters.do_striptags(value)


@pass_environment
def _sum(environment: Environment, iterable: Iterable[Any], attribute: Any = None) -> Any:
    """Sum of numbers only: adding lists would copy them again and again."""
    return filters.sync_do_sum(environment, iterable, attribute)


@pass_eval_context
def _tojson(context: EvalContext, value: Any, indent: int | None = None) -> str:
    return filters.do_tojson(context, value, None if indent is None else _most("the indent", indent, DEEPEST // 10))


def _trim(value: Any, chars: str | None = None) -> str:
    check_stripped(str(chars or ""))
    return filters.do_trim(value, chars)


@pass_environment
def _wordwrap(environment: Environment, s: Any, width: int = 79) -> str:
    _most("the length", len(str(s)), LONGEST_READ)
    return filters.do_wordwrap(environment, s, width)


# Filters that could produce much from little.
OF_OURS: Mapping[str, Callable[..., Any]] = {
    "center": _center,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "striptags": _striptags,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
    "wordwrap": _wordwrap,
}


def paid_filters() -> dict[str, Callable[..., Any]]:
    """Return the allowed filters by name, each charged."""
    return {name: _paid(OF_OURS.get(name) or filters.FILTERS[name]) for name in FILTER_NAMES.split()}


# Tests that compare, or convert their argument to text. The others check the type only.
PAID_TESTS = (
    "!= < <= == > >= divisibleby eq equalto ge greaterthan gt in le lessthan lower lt ne upper"  # as Jinja names them
)


def paid_tests() -> dict[str, Any]:
    """Return all tests of Jinja by name, charged where necessary."""
    known: Mapping[str, Any] = tests.TESTS

    def paid(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def call(*args: Any) -> Any:
            for value in args:
                pay(value)
            return test(*args)

        return call

    return {name: paid(test) if name in PAID_TESTS.split() else test for name, test in known.items()}


def _paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter: its arguments are charged before the call, its result after it."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        for value in (*args, *named.values()):
            if is_plain(value) or not isinstance(value, Environment | EvalContext | Context | Iterable):
                weigh(value)
        return taken(function(*args, **named))

    return call


def is_plain(value: Any) -> bool:
    """Return whether the value has a size."""
    return isinstance(value, str | list | tuple | dict)
