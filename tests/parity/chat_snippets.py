# SPDX-License-Identifier: MIT
"""Small templates for chat_templates.py: constructs of Jinja, each alone. m is a message's text."""

M = "{% set m = messages[0].content %}"
F = "{% macro f(a=1) %}<{{ caller() }}|{{ a }}>{% endmacro %}"
TREE = "{% set tree = [{'n': 'a', 'k': [{'n': 'b', 'k': []}, {'n': 'c', 'k': [{'n': 'd', 'k': []}]}]}] %}"
WORDS = "{% set words = ['pear', 'Apple', 'fig', 'apple', 'Fig'] %}"
ROWS = "{% set rows = [{'n': 'b', 'v': 2}, {'n': 'a', 'v': 1}, {'n': 'c'}] %}"

SNIPPETS = [
    # numbers
    *["{{ %s }}" % e for e in """
0.5|1.0|1e3|1.5e-7|1E5|12345678.9|1_000.5|0.1 + 0.2|1 / 2|4 / 2|7 // 2|-7 // 2|7 % 3|-7 % 3|7.5 // 2|-7.5 // 2|7.5 % 2|-7.5 % 2
2 ** 10|2 ** -1|2.0 ** 3|2 ** 3 ** 2|-2 ** 2|1e16|1e15|123456789012345.0|0.0001|0.00001|-0.0|-1.5|+1.5|1.5 * 2|3 - 0.5|true + 1
true / 2|1 == 1.0|1 < 1.5|0.1 + 0.2 == 0.3|9007199254740993 == 9007199254740992.0|1 / 3|2 / 3|100 / 3|1e22|1 / 0|1 // 0|1.5 % 0
0x1f|0b101|0o17|1_000|007|1.|.5|1..2|1e|5 * 'ab'|'ab' * 3|'ab' * 0|'ab' * -1|'ab' * 1.5|([1, 2] * 2) | join(',')
1.5 | int|-1.5 | int|'12' | int|' 12 ' | int|'1.9' | int|'x' | int|'x' | int(7)|none | int|true | int|'1e3' | float|'x' | float|3 | float
none | float(2.5)|'-.5' | float|1.5 | round|2.5 | round|-2.5 | round|2.567 | round(2)|2.567 | round(2, 'floor')|2.561 | round(2, 'ceil')|5 | round
42 | round(1)|1234.5 | round(-2)|-1.5 | abs|-3 | abs|1.5 | string|1.5 | tojson|[1.0, 0.5] | tojson|1.5 is number|1.5 is float|1 is float
1.5 is integer|0.0 and 1|0.0 or 2|not 0.5|1.5 ~ 'x'|0.5 in [0.5]|1 in [1.0]|'%.1f' | length|1.5 is divisibleby 2|6 is divisibleby 3|3 is odd|1e309
[1,2,3].1|[[1, 2], [3]].0.1|[1.5, 2][0]|range(3).1|'abc'.1""".replace("\n", "|").replace(" | ", "\0").split("|")],
    # comparisons
    *["{{ %s }}" % e for e in """1 < 2 < 3;1 < 3 < 2;3 > 2 > 1;1 < 2 == 2;1 == 1 == 1;1 != 2 != 1;1 in [1] in [[1]];1 not in [2] in [[2]]
2 > 1 in [1];'a' < 'b' < 'c';1 <= 1 >= 1;1 < 2 > nothing;2 < 1 < nothing.x;not 1 < 2 < 3;1 < 2 and 2 < 3 < 4;1 <= 'a';1 < 2 is true
none == none == none;1.5 <= 1.5 < 2;5 is gt(3);5 is lt 3;5 is ge(5);5 is le(5);5 is ne(5);'A' is upper;'a' is lower;'1' is lower;'aB' is lower
[1, 2] == [1, 2.0];{'a': 1} == {'a': 1.0}""".replace("\n", ";").split(";")],
    # strings side by side
    "{{ 'a' 'b' }}", "{{ 'a' \"b\"\n 'c' | upper }}", "{{ 'a' 'b\\n' ~ 'c' }}", "{{ {'a' 'b': 1}.ab }}", "{{ 'x' if 'a' 'b' == 'ab' }}",
    "{{ 'a' 1 }}", r"{{ '\x41é\101\7|\8\z' }}", r"{{ '\U0001F600' }}",
    # call blocks
    F + "{% call f() %}x{% endcall %}", F + "{% call f(2) %}{{ m }}x{% endcall %}", F + M + "{% call f(a=m) %}{{ m }}{% endcall %}",
    "{% macro g(xs) %}{% for x in xs %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% call(a, b=5) g([1, 2]) %}{{ a }}-{{ b }}{% endcall %}",
    "{% macro g() %}{{ caller(1) }}{% endmacro %}{% call(a, b=a) g() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro g() %}x{% endmacro %}{% call g() %}y{% endcall %}", "{% macro g() %}{{ caller is defined }}{% endmacro %}{{ g() }}{% call g() %}y{% endcall %}",
    F + "{% for i in [1, 2] %}{% call f(i) %}{{ i }}{{ loop.last }}{% endcall %}{% endfor %}",
    F + "{% set x = 1 %}{% call f() %}{% set x = 2 %}{{ x }}{% endcall %}{{ x }}",
    F + "{% call f() %}{% call f(3) %}in{% endcall %}{% endcall %}", F + "{% macro h(y) %}{% call f(y) %}{{ y }}{% endcall %}{% endmacro %}{{ h(7) }}",
    F + "{% call 1 %}{% endcall %}", F + "{% call f %}{% endcall %}", "{% call f() %}x", F + "{% call f(2) | upper %}x{% endcall %}",
    F + "  {% call f() -%}  x  {%- endcall %}\n  y",
    # arguments of macros
    "{% macro g(a) %}{{ a }}{{ varargs | join('+') }}{% endmacro %}{{ g(1, 2, 3) }}", "{% macro g(a) %}{{ kwargs.b }}{{ kwargs | length }}{% endmacro %}{{ g(1, b=2) }}",
    "{% macro g(a) %}{{ a }}{% endmacro %}{{ g(1, 2) }}", "{% macro g(a) %}{{ a }}{% endmacro %}{{ g(b=2) }}", "{% macro g(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ g(3) }}",
    "{% macro g(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ g(*[1, 2]) }}{{ g(**{'b': 1, 'a': 2}) }}{{ g(3, *[4]) }}", "{{ range(*[1, 4]) | join }}",
    "{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "{% macro o(a) %}{% macro i(b) %}{{ a }}{{ b }}{% endmacro %}{{ i(2) }}{% endmacro %}{{ o(1) }}",
    "{% for x in [1, 2] %}{% macro i(b) %}{{ x }}{{ b }}{% endmacro %}{{ i(3) }}{% endfor %}",
    "{% set x = 1 %}{% macro g() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ g() }}", "{% for x in [5] %}{{ g is defined }}{% macro g() %}{{ x }}{% endmacro %}{% endfor %}{{ g is defined }}",
    "{% macro g() %}{{ x is defined }}{% endmacro %}{% for x in [1] %}{{ g() }}{% endfor %}", "{% macro g() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ g() }}{{ x is defined }}",
    # filter blocks
    "{% filter upper %}a{{ messages[0].role }}b{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% filter trim %}  x  {% endfilter %}|",
    "{% set x = 1 %}{% filter upper %}{% set x = 2 %}a{{ x }}{% endfilter %}{{ x }}", "{% for i in [1, 2] %}{% filter upper %}a{{ i }}{% endfilter %}{% endfor %}",
    "{% filter upper %}{% filter replace('A', 'c') %}aA{% endfilter %}{% endfilter %}", "{% filter nosuch %}x{% endfilter %}", "{% filter upper %}x", "{% filter indent(2) %}a\nb\n\nc{% endfilter %}",
    "{% set x | upper %}ab{{ messages[0].role }}{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}a{% endset %}{{ x }}", "{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    # arguments of methods and filters
    *["{{ %s }}" % e for e in """'aaa'.find('a', 1);'aéa'.find('a', 1);'abc'.find('c', 0, 2);'abc'.find('a', -2);'abc'.find('b', -9, -1);'abc'.find('', 3);'abc'.find('', 4);'abc'.find('b', none)
'abc'.startswith('b', 1);'abc'.startswith('b', 2);'abc'.endswith('b', 0, 2);'abc'.endswith('c', 0, -1);'éab'.startswith(('x', 'b'), 2);'abc'.startswith('', 4);'abc'.find('b', 'x')
'a,b,c'.split(sep=',', maxsplit=1) | join('|');'a,b,c'.split(',', maxsplit=1) | join('|');'a,b'.split(',', none);'a'.upper(1);'a'.strip('a', 'b');'a'.strip(chars='a');'ab'.find(sub='a');'a'.startswith(prefix='a')
'ab'.replace(old='a', new='b');{'a': 1}.get('b', default=2);{'a': 1}.get('b', 2, 3);{'a': 1}.items(1);'a' | upper(1);'a' | length(1);'a' | trim(' ', 1);'a' | trim(nosuch=1);[1, 2] | join(',', none, 1);[1, 2] | join(d=',')
[1, 2] | join(0);[1, 2] | join(none);[['a'], ['b']] | join('-', attribute=0);[2, 1] | sort(nosuch=true) | join;[2, 1] | first(1);'a' | default('b', false, 1);nothing | default(default_value='b');nothing | default('b', default_value='c')
'ab' | replace('a', 'b', nosuch=1);'aaa' | replace('a', 'b', none);'aaa' | replace('a', 'b', count=2);2.5 | round('a');[1] | map(attribute='x', nosuch=1) | join;range(stop=3) | join;raise_exception('a', 'b')""".replace("\n", ";").split(";")],
    # numbers that are easily read or rounded otherwise
    *["{{ %s }}" % e for e in """-2 // (1e308 * 10);2 // (1e308 * 10);2.5 // -(1e308 * 10);-0.0 // 3;3.3 ** 2;1.5 ** 3;0.5 ** 20;2.0 ** 100;2.0 ** -3;1.1 ** 1;0.0 ** 3;10 ** -2;3.3 ** -1;'1__0' | int;'_1' | int;'1_' | int;'1_0' | int;'1_' | float;'1_0.5' | float;'1_.5' | float;'1._5' | float
'1e_5' | float;'0x1f' | int;'0x1f' | int(base=16);'ff' | int(0, 16);'-FF' | int(base=16);'0x_f' | int(base=16);'0x__f' | int(base=16);'0b11' | int(base=16);'z' | int(base=36);'0o17' | int(base=0);'017' | int(base=0);'017' | int;3.7 | int(base=16)
1__0;1_;0x_f;0x__f;1_0.5;1_.5;0x;1._5;+true;-true;+'a';+none;+nothing;+-+1;-+2.5;+1 | string;{'a': 1, 'b': 2, 'a': 3} | tojson;{'a': 1, 'a': 2} | length;x is callable;x.y is callable;range is callable;[] is callable;x | first;x | last;(x | first) is defined
none | first;5 | last;{'a': 1, 'b': 2} | first;{'a': 1, 'b': 2} | last;{} | first""".replace("\n", ";").split(";")],
    *["{% if tools %}{{ " + e + " }}{% endif %}ok" for e in ("0x1234567890123456789", "1.23456789012345678901234567890123456789012345678", "0b1111111111111111111111111111111111111111111111111111111111111111111111", "1__0", "0x__1")],
    "{% macro f(a) %}<{{ a }}>{% endmacro %}{% set ns = namespace(g=f) %}{{ ns.g(1) }}{{ ns['g'](2) }}", "{% macro f(a) %}<{{ a }}>{% endmacro %}{% set ns = namespace() %}{% set ns.g = f %}{{ ns.g(a=1) }}", "{% set ns = namespace(g=1) %}{{ ns.g() }}", "{% set ns = namespace() %}{{ ns.g() }}",
    # raw blocks
    "{% raw %}{{ x }}{% if %}{# c #}{% endraw %}!", "a\n{% raw %}\n b {{ x }}\n  {% endraw %}\nc", "a  {%- raw -%}  b  {%- endraw -%}  c", "a  {%+ raw %}  b\n  {%+ endraw +%}\nc", "{%raw%}{%endraw%}x",
    "{% raw %}x", "{% raw %}{% raw %}{% endraw %}", "{% raw %}{% endraw %}{% raw %}b{% endraw %}", "  {% raw %}x{% endraw %}  \n y", "{% raw %}\n{% endraw %}\n\nx", "{% raw x %}{% endraw %}", "{% endraw %}", "x\n  {% raw -%}\n  y\n  {% endraw %}z",
    # with
    "{% with a=1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% set a = 1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set a = 3 %}{{ a }}{% endwith %}{{ a is defined }}",
    "{% for i in [1, 2] %}{% with j=i * 2 %}{{ j }}{% if i == 1 %}{% continue %}{% endif %}!{% endwith %}{% endfor %}", "{% with a=1 b=2 %}{% endwith %}", "{% with a=1, b=2 %}{{ a + b }}", "{% with ns=namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}{% endwith %}",
    "{% macro g() %}{{ a is defined }}{% endmacro %}{% with a=1 %}{{ g() }}{% endwith %}", "{% with a=1 %}{% macro g() %}{{ a }}{% endmacro %}{{ g() }}{% endwith %}",
    # loops
    TREE + "{% for t in tree recursive %}{{ t.n }}{{ loop.depth }}{% if t.k %}({{ loop(t.k) }}){% endif %}{% endfor %}", TREE + "{% for t in tree %}{{ loop(t.k) }}{% endfor %}",
    TREE + "{% for t in tree if t.n != 'z' recursive %}{{ t.n }}{{ loop.depth0 }}{{ loop(t.k) }}{% else %}-{% endfor %}", "{% for c in 'aé' %}{{ c }};{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}", "{% for x in [] %}{% else %}{% set y = 1 %}{{ y }}{% endfor %}{{ y is defined }}", "{% for x in none %}{% endfor %}",
    "{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}a{% break %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}b{% else %}E{% endfor %}",
    "{% for x in [1, 2] %}a{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}", "{% for x in [1, 2] if x > 5 %}a{% else %}E{% endfor %}", "{% for y in [1] %}{% for x in [1, 2] %}{% continue %}{% else %}{% break %}{% endfor %}a{% else %}E{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}{{ loop.length }}{% endfor %}", "{% for x in [1] %}{% for x in [2] %}{{ x }}{% endfor %}{{ x }}{% endfor %}", "{% for x in range(3) %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{% endfor %}",
    "{% set x = 1, 2 %}{{ x | length }}{{ x[1] }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% if 1, 2 %}y{% endif %}",
    # lists and filters
    WORDS + "{{ words | sort | join(',') }}", WORDS + "{{ words | sort(reverse=true) | join(',') }}", WORDS + "{{ words | sort(case_sensitive=true) | join(',') }}", WORDS + "{{ words | unique | join(',') }}", WORDS + "{{ words | reverse | join(',') }}",
    WORDS + "{{ words | map('upper') | join(',') }}", WORDS + "{{ words | map('replace', 'p', 'b') | join(',') }}", WORDS + "{{ words | map('nosuch') | join }}", WORDS + "{{ words | min }}{{ words | max }}", WORDS + "{{ words | select('in', ['fig']) | join }}",
    ROWS + "{{ rows | sort(attribute='n') | map(attribute='n') | join }}", ROWS + "{{ rows | map(attribute='v', default=9) | join(',') }}", ROWS + "{{ rows[:2] | sum(attribute='v') }}", ROWS + "{{ rows | selectattr('v', 'defined') | map(attribute='n') | join }}",
    ROWS + "{{ rows | rejectattr('v') | map(attribute='n') | join }}", ROWS + "{{ rows | join('+', attribute='n') }}", ROWS + "{{ rows | selectattr('v', 'gt', 1) | list | length }}", "{{ [3, 1, 2] | sort | join }}", "{{ [3, 1.5] | sum }}", "{{ [] | max }}", "{{ [0, 1, '', 'a'] | select | join }}",
    "{{ [1, 2, 3, 4] | select('odd') | join }}", "{{ [1, 2, 3] | reject('even') | join }}", "{{ {'b': 1, 'a': 2} | dictsort | map('first') | join }}", "{{ {'b': 1, 'a': 2} | dictsort(by='value') | map('first') | join }}", "{{ {'b': 1, 'a': 2} | dictsort(false, 'value', true) | map('last') | join }}",
    "{{ 'abc' | reverse }}", "{{ 'abc' | list | join('-') }}", "{{ {'a': 1} | list | join }}", "{{ 'hello big-world (foo)' | title }}", "{{ 'hello big-world' .title() }}", "{{ 'a\nb\n\nc' | indent }}", "{{ 'a\nb' | indent(2, true) }}", "{{ 'a\n\nb' | indent('> ', blank=true) }}",
    "{{ {'a': [1, {'b': none}], 'c': {}} | tojson }}", "{{ {'a': [1, {'b': none}], 'c': {}, 'd': []} | tojson(indent=2) }}", "{{ [1.5, true] | tojson(indent=4) }}", "{{ {'a': 1} | tojson(ensure_ascii=false) }}", "{{ 'a,b' | join('-') }}",
    # what never runs may be anything that jinja2 can read
    *["{% if tools %}" + s + "{% endif %}ok" for s in (
        "{% call f() %}x{% endcall %}", "{{ x | nosuch(1, *a, **b) }}", "{{ x is nosuch(1) }}", "{{ 'a'.nosuch() }}", "{{ 1.2345678901234567 }}", "{{ 2 ** 0.5 }}", "{{ x.1 }}", "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
        "{{ a[1:2, 3] }}", "{{ (1,) }}", "{{ () }}", "{{ {1: 2} }}", "{{ [a, ] }}", "{% set a.b = 1 %}", "{% set a | upper %}x{% endset %}", "{{ a if b }}", "{{ a.b.c(d)(e)[f] }}", "{{ '%s' % x }}", "{{ -x ** -y }}", "{{ x|a.b }}", "{{ x is a.b }}",
        "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y as z, w %}", "{% block t %}x{% endblock %}", "{% autoescape true %}x{% endautoescape %}", "{{ self.x() }}", "{% for (a, b) in c %}{% endfor %}", "{% for a, (b, c) in d %}{% endfor %}", "{% set (a, b) = c %}", "{{ 1e400 }}", "{{ 99999999999999999999 }}", "{% set a, b.c = 1, 2 %}", "{% with a, b = c %}{% endwith %}")],
    "{% block t %}x{{ messages[0].role }}{% endblock %}", "{% autoescape false %}x{% endautoescape %}", "{% include 'x' %}", "{% nosuch %}",
]
SNIPPETS = [s.replace("\0", " | ") for s in SNIPPETS]
