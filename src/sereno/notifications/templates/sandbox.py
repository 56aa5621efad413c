"""The sandbox in which templates run: they are treated as untrusted code.

Templates can use plain values, some of their methods and some filters, and nothing else of Python; what they do is
charged to a budget (`sandbox_costs`). Imported only where templates are used, because Jinja is slow to import.
"""

from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, Template, nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.environment import TemplateModule
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from sereno.notifications.templates.sandbox_costs import (
    ITEMS_A_STEP,
    LETTERS_A_STEP,
    MOST_BITS,
    check_format,
    check_printf,
    fits,
    is_plain,
    paid_filters,
    paid_tests,
    pay,
    pay_for_method,
    sibling_of_this_render,
    sliced,
    spend,
    taken,
    walk,
    weigh,
)

MOST_RANGE = 10_000

_STR = "capitalize casefold count endswith find index isalnum isalpha isdigit islower isnumeric isspace isupper lower "
_STR += (
    "lstrip partition removeprefix removesuffix rpartition rsplit rstrip split splitlines startswith strip swapcase "
)
_STR += "title upper"
_LOOP = "changed cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0"
ATTRIBUTES: tuple[tuple[type, frozenset[str] | None], ...] = (
    (str, frozenset(_STR.split())),
    (dict, frozenset({"get", "items", "keys", "values"})),
    (list, frozenset({"count", "index"})),
    # The last two belong to the groups of `groupby`.
    (tuple, frozenset({"count", "index", "grouper", "list"})),
    (LoopContext, frozenset(_LOOP.split())),
    # Everything in it was put there by the template.
    (Namespace, None),
    (TemplateModule, None),
)


class _Generator(CodeGenerator):
    """Inserts a call at each place where a value grows, or where the time depends on sizes."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        step = nodes.Call(nodes.EnvironmentAttribute("pass_by"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            # Items that the test rejects never reach the body.
            walked = nodes.EnvironmentAttribute("walk")
            node.iter = nodes.Call(walked, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        escaping = "context.eval_ctx.autoescape" if frame.eval_ctx.volatile else repr(bool(frame.eval_ctx.autoescape))
        self.write(f"(markup_join if {escaping} else str_join)(environment.weighed((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        self._weighed(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        self.write("environment.weighed({")
        for item in node.items:
            # Charged before it is hashed.
            self._paid(item.key, frame)
            self.write(": ")
            self.visit(item.value, frame)
            self.write(", ")
        self.write("})")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        self.write("(")
        self._paid(node.expr, frame)
        for operand in node.ops:
            self.write(f" {operators[operand.op]} ")
            self._paid(operand.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.sliced(")
        self.visit(node.node, frame)
        self.write(", slice(")
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            if bound is None:
                self.write("None, ")
            else:
                self.visit(bound, frame)
                self.write(", ")
        self.write("))")

    def _paid(self, node: nodes.Node, frame: Frame) -> None:
        self.write("environment.paid(")
        self.visit(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802 - Jinja's own name
        if node.ctx == "load":
            self._weighed(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def _weighed(self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.weighed(")
        visit(node, frame)
        self.write(")")


class _SiblingTemplates(BaseLoader):
    """Loads includes from the templates of the same event only."""

    def load(self, environment: Environment, name: str, globals: Any = None) -> Template:  # noqa: A002, ARG002 - Jinja's own signature
        spend(ITEMS_A_STEP)
        return sibling_of_this_render(name)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja reduced to what messages need."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self, *, is_html: bool) -> None:
        super().__init__(
            autoescape=is_html,
            undefined=StrictUndefined,
            finalize=_finalized,
            loader=_SiblingTemplates(),
            # Which template a name means depends on the recipient.
            cache_size=0,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters = paid_filters()
        self.tests = paid_tests()
        self.globals = {"range": _range, "namespace": Namespace}

    def made(self, name: str, source: str) -> Template:
        """Compile a source. `name`: its name in errors."""
        return Template.from_code(self, self.compile(source, name, name), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002 - Jinja's own signature
        if attr.startswith("_"):
            return False
        return any(isinstance(obj, kind) and (names is None or attr in names) for kind, names in ATTRIBUTES)

    def getattr(self, obj: Any, attribute: str) -> Any:
        # A payload may have a field `items`, which takes precedence over the method.
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):
            # A tuple is hashed on each access.
            weigh(argument)
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__
        inner = wrapped

        def checked(*args: Any, **named: Any) -> str:
            check_format(text, [*args, named])
            return inner(*args, **named)

        return checked

    def call(self, context: Context, obj: Any, /, *args: Any, **named: Any) -> Any:
        spend()
        for value in (*args, *named.values()):
            if is_plain(value):
                weigh(value)
        if isinstance(obj, BuiltinMethodType):
            pay_for_method(obj.__self__, obj.__name__, args)
        if isinstance(obj, LoopContext):
            args = tuple(map(walk, args))
        return taken(super().call(context, obj, *args, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator, left, right:
            case "*", (str() | list() | tuple()), int():
                fits(len(left) * right)
            case "*", int(), (str() | list() | tuple()):
                fits(len(right) * left)
            case "*", int(), int():
                _bits(left.bit_length() + right.bit_length())
            case "**", int(), int():
                _bits(left.bit_length() * abs(right))
            case "%", str(), _:
                check_printf(left, right)
        return taken(super().call_binop(context, operator, left, right))

    def concat(self, parts: Iterable[str]) -> str:
        size, joined = 0, []
        for part in parts:
            size += len(part)
            fits(size)
            joined.append(part)
        spend(1 + size // LETTERS_A_STEP)
        return "".join(joined)

    # Called by the generated code

    def pass_by(self) -> None:
        """Charge one iteration; `call` does it."""

    def walk(self, items: Iterable[Any]) -> Iterator[Any]:
        return walk(items)

    def paid(self, value: Any) -> Any:
        return pay(value)

    def sliced(self, value: Any, cut: slice) -> Any:
        return sliced(value, cut)

    def weighed(self, value: Any) -> Any:
        weigh(value)
        return value


def _finalized(value: Any) -> Any:
    """Charge a value that is written into the text: escaping copies it."""
    if isinstance(value, str):
        return pay(value)
    weigh(value)
    return value


def _bits(count: int) -> None:
    if count > MOST_BITS:
        raise SecurityError("a number becomes too large")


def _range(*bounds: int) -> range:
    try:
        made = range(*bounds)
        length = len(made)
    except OverflowError:
        length = MOST_RANGE + 1
    if length > MOST_RANGE:
        raise SecurityError(f"a range has more than {MOST_RANGE:,} items")
    return made
