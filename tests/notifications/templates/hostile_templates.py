"""Hostile templates. Each must fail quickly, with an error message."""

_SPACES = "{% set n = namespace(a=1) %}" + "{% set n = namespace(a=n, b=n) %}" * 40


def _doubled(start: str, step: str, end: str = "") -> str:
    return start + step * 40 + end


OUT_OF_THE_SANDBOX = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ [].__class__.__base__ }}",
    "{{ {}.__class__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ range.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ lipsum.__globals__ }}",
    "{{ config }}",
    "{{ request.application.__globals__ }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{0[__class__]}'.format(x) }}",
    "{{ '{x.__class__.__init__.__globals__}'.format_map({'x': x}) }}",
    "{{ ('{0.__cla' ~ 'ss__}').format(x) }}",
    "{{ ''.format.__self__ }}",
    "{{ [x]|map(attribute='__class__')|list|string }}",
    "{{ [x]|map('attr', '__class__')|list }}",
    "{{ [x]|selectattr('__class__')|list }}",
    "{{ [x]|groupby('__class__') }}",
    "{{ [x]|sort(attribute='__class__.x') }}",
    "{{ [x]|sum(attribute='__class__') }}",
    "{{ [x]|join(attribute='__class__') }}",
    "{{ x.encode() }}",
    "{{ x.translate({}) }}",
    "{{ x.format }}",
    "{{ xs.append(1) }}",
    "{{ xs.clear() }}",
    "{{ d.update({'a': 1}) }}",
    "{{ d.pop('a') }}",
    "{% for a in xs %}{{ loop._iterator }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m._func }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ self }}",
    "{{ namespace }}",
    "{% set n = namespace(a=1) %}{{ n._Namespace__attrs.a }}",
    "{{ d.items }}",
]
OTHER_FILES = [
    "{% include '/etc/passwd' %}",
    "{% include '../../etc/passwd' %}",
    "{% include 'file:///etc/passwd' %}",
    "{% include ['a', 'b'] %}",
    "{% import 'os' as os %}",
    "{% from 'os' import path %}",
    "{% extends 'x' %}",
]
TOO_LARGE = [
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ 'a' * 1000000000 }}",
    "{{ [0] * 10**9 }}",
    "{{ 9**(9**9) }}",
    "{{ 2**100000 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ 'a'|center(1000000000) }}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a'.zfill(1000000000) }}",
    "{{ '\t'.expandtabs(1000000000) }}",
    "{{ x.join(xs) }}",
    "{{ 'a\nb'|indent(1000000000) }}",
    "{{ 1|round(1000000000, 'ceil') }}",
    "{{ [1]|tojson(indent=1000000000) }}",
    "{{ [1]|batch(1000000000, 'x')|list }}",
    "{{ [1]|slice(1000000000)|list }}",
    "{{ 'a b'|wordwrap(1, true, 'x'*1000000) }}",
    "{{ [[1]]|sum(start=[]) }}",
    "{{ lipsum(10**9) }}",
    "{{ range(10001) }}",
    "{{ range(10**30) }}",
    "{% for a in range(10000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{{ s ~ s }}",
    "{% set s = 'x' * 1000000 %}{{ [s, s]|join }}",
    "{% set s = 'x' * 1000000 %}{{ ('{0}' * 10000).format(s) }}",
    "{{ ('%(a)s' * 10000) % {'a': x * 10000} }}",
    "{% set s = '<!---->' * 100000 %}{{ s|striptags }}",
    "{{ range(10000)|map('string')|map('center', 1000)|list }}",
    "{{ range(10000)|map('replace', '1', x * 100000)|list|length }}",
    _doubled("{% set s = 'aaaa' %}", "{% set s = s ~ s %}"),
    _doubled("{% set s = 'aaaa' %}", "{% set s = s + s %}"),
    _doubled("{% set s = 'aaaa' %}", "{% set s %}{{ s }}{{ s }}{% endset %}"),
    _doubled("{% set s = 'aaaa' %}", "{% set s = s|replace('a', 'aa') %}"),
    _doubled("{% set s = 'aaaa' %}", "{% set s = '%s%s' % (s, s) %}"),
    _doubled("{% set s = 'aaaa' %}", "{% set s = '{0}{0}'.format(s) %}"),
    _doubled("{% set s = [1] %}", "{% set s = s + s %}"),
    _doubled("{% set s = [1] %}", "{% set s = [s, s] %}", "{{ s }}"),
    _doubled("{% set s = [1] %}{% set t = [1] %}", "{% set s = [s, s] %}{% set t = [t, t] %}", "{{ s == t }}"),
    _doubled("{% set s = (1,) %}", "{% set s = (s, s) %}", "{{ [s]|unique|list }}"),
    _doubled("{% set s = {'a': 1} %}", "{% set s = {'a': s, 'b': s} %}", "{{ s|tojson }}"),
    _SPACES + "{{ n }}",
    _SPACES + "{{ n|string }}",
    _SPACES + "{{ [n]|string }}",
    _SPACES + "{{ '%s' % n }}",
    _SPACES + "{{ '{}'.format(n) }}",
    _SPACES + "{{ 'a' ~ n }}",
    "{% set n = namespace(s='aaaa') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "{% set n = namespace(s=7) %}{% for i in range(100) %}{% set n.s = n.s * n.s %}{% endfor %}",
]
TOO_LONG = [
    "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
    "{% for a in range(10000) %}{% for b in range(10000) if false %}{% endfor %}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for c in s if false %}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(10000) %}" + "{% set t = s[::-1] %}" * 9 + "{% endfor %}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{% macro a(n) %}{% if n %}{{ a(n-1) }}{{ a(n-1) }}{% endif %}{% endmacro %}{{ a(60) }}",
    "{% macro a(n) %}{% if n %}{{ a(n-1, varargs, varargs) }}{% endif %}{% endmacro %}{{ a(60) }}",
    "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% include 'body' %}",
    "{% extends 'any.body' %}",
    "{% import 'body' as b with context %}",
]
_TEXT, _LIST = "{% set s = 'x' * 1000000 %}", "{% set l = range(10000)|list %}{% set m = range(10000)|list %}"
_TUPLE = "{% set t = (1,) * 40000 %}"


def _many(start: str, operation: str, count: int = 400) -> str:
    """Repeat an operation on large values, without a loop that would be counted."""
    return start + "{{ [" + f"{operation}, " * count + "1]|length }}"


# Operations whose cost depends on the sizes of their operands.
UNPAID = [
    _many(_TEXT, "s[1:]"),
    _many(_TEXT, "s[::-1]"),
    _many(_LIST, "l[1:]"),
    _many(_LIST, "-1 in l"),
    _many(_LIST, "-1 not in l"),
    _many(_LIST, "l == m"),
    _many(_LIST, "l <= m <= l"),
    _many(_LIST, "l is eq m"),
    _many(_LIST, "-1 is in l"),
    _many(_LIST, "l is lower"),
    _many(_LIST + "{% set r = range(10000) %}", "'x' in r"),
    _many(_TUPLE, "d[t] is defined"),
    _many(_TUPLE, "{t: 1}"),
    _TUPLE + "{{ {" + "t: 1, " * 400 + "1: 1}|length }}",
    _LIST + "{{ ([l] * 4)|select('eq', m)|list|length }}" * 100,
    _many(_LIST, "l.count(-1)"),
    _many(_TEXT, "s.count('y')"),
    "{{ ('{0:999}' * 100000).format(1) }}",
    "{{ ('{0:999}' * 10000).format(1) }}",
    "{{ ('{0:.999f}' * 10000).format(1.5) }}",
    "{{ ('{0!r}' * 100).format('\\x00' * 5000) }}",
    "{{ ('%(a)999d' * 100000) % {'a': 1} }}",
    "{{ ('%(a)999d' * 10000) % {'a': 1} }}",
    "{{ ('%(a).999f' * 10000)|format(a=1.5) }}",
    "{% set s = 'a' * 500000 %}{{ s.strip('b' * 499999 ~ 'a') }}",
    "{% set s = 'a' * 500000 %}{{ s|trim('b' * 499999 ~ 'a') }}",
    "{% set s = 'a' * 500000 %}{{ s.rpartition('b' ~ 'a' * 250000) }}",
    "{% set s = 'a' * 500000 %}{{ s.rsplit('b' ~ 'a' * 250000) }}",
]
# Those of them that copy, or make, large values.
UNPAID_COPIES = [text for text in UNPAID if "s[" in text or "l[" in text or "{0" in text or "%(a)" in text]
# Where values are escaped, each output is a copy.
UNPAID_HTML = [
    _TEXT + "{% macro a() %}" + "{{ s }}" * 2000 + "{% endmacro %}{{ a()|length }}",
    _TEXT + "{% set t %}" + "{{ s }}" * 2000 + "{% endset %}{{ t|length }}",
]
# Short enough to be stored. The first takes hundreds of megabytes to compile, the second seconds.
LARGE_TO_COMPILE = "{{ x" + "<x" * 30000 + " }}"
SLOW_TO_COMPILE = "{%macro a()%}" * 15 + "".join(
    f"{{%if a%}}{{%set b{number}=1%}}{{%endif%}}" for number in range(1750)
)
SLOW_TO_COMPILE += "{%endmacro%}" * 15
NONSENSE = [
    "{{",
    "{% nonsense %}",
    "{{ x|nonsense }}",
    "{{ x is nonsense }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 20000 + "1 }}",
    "{{ x" + ".a" * 20000 + " }}",
    "{% if 1 %}" * 5000,
    "{% for a in x %}" * 30 + "{% endfor %}" * 30,
    "x" * 70000,
    "{{ 1" + "+1" * 20000 + " }}",
    "{{ 0x" + "f" * 60000 + " }}",
    "{{ " + "9" * 60000 + " }}",
    "{{ '\\ud800' }}",
    "{{ '\\u0000' }}",
    "{{ (-1)**0.5 }}",
    "{{ 1/0 }}",
    "{{ none + 1 }}",
    "{{ d.missing.more }}",
]
HOSTILE = [*OUT_OF_THE_SANDBOX, *OTHER_FILES, *TOO_LARGE, *TOO_LONG, *NONSENSE]
