"""The templates and conversations that tools/make_chat_cases.py renders."""

VARIABLES = {
    "s": "Hello World", "empty": "", "sp": "  \n padded\t ", "u": "Grüße, 世界 🌍 ß Σίσυφος ǆ İ",
    "q": "it's \"quoted\" \\ <b>&amp;</b>\n\ttab\u0001\u007f\u00a0\u2028é", "n": 7, "z": 0, "neg": -7,
    "f": 2.5, "big": 1e22, "small": 1e-7, "t": True, "fa": False, "nil": None,
    "l": [3, 1, 2], "el": [], "ls": ["b", "A", "c", "a"], "mixed": [1, "two", None, True, 2.5, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "items": "shadow", "C": 3}, "ed": {}, "nested": {"x": {"y": [10, {"z": "deep"}]}},
    "people": [{"name": "Ann", "age": 30, "city": "Oslo"}, {"name": "bob", "age": 25},
               {"name": "Cid", "age": 30, "city": "oslo"}, {"name": "Dee", "age": 41, "city": "Rome"}],
    "lines": "one\n\n  two\r\nthree\x0bfour", "nums": "1,2,,3", "html": "<a href='x'>&\"</a>",
    "_private": "hidden", "under": {"_x": 1, "__y": 2},
}

PARSE = [
    # text, comments, white space control
    "", "plain", "plain\n", "plain\n\n", "a\r\nb\rc", "{{ s }}", "{{s}}\n", "a {{ s }} b", "{# note #}x", "a{# x #}\nb", "a\n  {# x #}\nb",
    "a {#- x -#} b", "a\n{#+ x +#}\nb", "  {% if t %}x{% endif %}\ny", "x  {% if t %}y{% endif %}", "  {%+ if t %}x{% endif +%}\ny",
    "a \n {%- if t -%} \n b \n {%- endif -%} \n c", "{% if t %}\n\n  a\n  {% endif %}\n\nb", "  {{ s }}\n  {{- s -}}  \n b", "{{ s -}}\n\n\n x",
    "a\n   {{ s }}", "\n\n{% set x = 1 %}\n{{ x }}", "\t {% set x = 1 %} \n{{ x }}", "{% set x = 1 %}{{ x }}\n{% set y = 2 %}\n\n{{ y }}\n",
    "x {{- '' }} y", "{{ '' -}} \u2003\u00a0 y", "{%- if t %} a {%- else %} b {%- endif %} c", "{%-  if t  -%}a{%-endif-%}", "{%if t%}a{%endif%}",
    "{% raw %}{{ s }}{% endraw %}", "{% raw -%}  {{ s }} {%- endraw %}", "a\n  {% raw %}\n x\n  {% endraw %}\nb", "{%- raw %} {% if %} {%+ endraw +%}\nz",
    "{{ '{{' }}", "{{ '}}' }}", "{{ \"%}\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{ { } }", "{", "{{ '{' }}{", "%}", "}}", "#}",
    "{%- set x %}  in {% endset -%} [{{ x }}]", "{% if t %}{% if fa %}{% endif %}\n{% endif %}.", "a\n\n{%- if t %}\nb\n{% endif %}\n\nc\n\n",
    "\n{{ s }}\n\n", " {#- x #} y {# z -#} w", "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    # literals
    "{{ 'a\\n\\t\\\\\\'\\x41\\u00e9\\U0001F600\\101\\q' }}", "{{ \"a'b\" }}", "{{ 'a' 'b' \"c\" }}", "{{ 'line\nbreak' }}", "{{ 'a\\\nb' }}", "{{ '世界' }}",
    "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 00 }}", "{{ 1.5 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1_0.2_5 }} {{ 2E+2 }}", "{{ 007 }}", "{{ [1, 2,] }} {{ (1,) }} {{ () }} {{ {} }} {{ [] }} {{ {'a': 1,} }}",
    "{{ (1) }} {{ (1, 2) }}", "{{ 1, 2 }}", "{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}", "{{ 'x\\u12' }}", "{{ 9223372036854775807 }}",
    # precedence
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 * -3 }} {{ - - 3 }} {{ +3 }}", "{{ 1 ~ 2 + 3 ~ 4 }}", "{{ 'a' ~ 1 * 2 }}", "{{ 1 + 2 ~ 3 }}",
    "{{ not t and fa }} {{ not (t and fa) }} {{ not not t }}", "{{ t or fa and fa }} {{ 1 or 2 }} {{ 0 or 'x' }} {{ 0 and 1 }} {{ '' or none }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 3 > 2 >= 2 }}", "{{ 1 in l and 9 not in l }} {{ not 1 in l }} {{ 'e' in s }}", "{{ -n|abs }} {{ (-n)|abs }} {{ 5 - -n|abs }}",
    "{{ 1 if t }} {{ 1 if fa }} {{ 1 if fa else 2 }} {{ 1 if fa else 2 if fa else 3 }} {{ (1 if t else 2) + 1 }}", "{{ s|lower|upper }} {{ s | replace('l', 'L') | length }}",
    "{{ 'a' + 'b'|upper }} {{ ('a' + 'b')|upper }} {{ n * 2 is odd }} {{ n is odd and t }}", "{{ l is not none }} {{ x is not defined }} {{ not x is defined }}", "{{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is in l }} {{ 3 is in [1,3] }}",
    "{{ 2 is eq 2 }} {{ 'a' is in 'abc' }} {{ n is eq(7) and true }}", "{{ l[0] }} {{ l[-1] }} {{ l.0 }} {{ l[9] }} {{ d.b }} {{ d['b'] }} {{ nested.x.y[1].z }}", "{{ people.0.name }}", 
    "{{ l[:] }} {{ l[1:] }} {{ l[:1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-2:] }} {{ l[5:] }} {{ l[2:0:-1] }} {{ l[-100:100] }} {{ s[1:4] }} {{ u[::-1] }} {{ u[3:9:2] }} {{ (1,2,3)[1:] }} {{ range(9)[2:8:3] }}",
    "{{ l[1:2:] }} {{ l[none:2] }} {{ l[true:] }}", "{{ s.upper() }} {{ 'x'.join(ls) }} {{ s[0].lower() }}", "{% print s %}", "{% if t: %}x{% endif %}", "{{ s|default('x', true)|upper }}",
    # blocks
    "{% if fa %}1{% elif z %}2{% elif n %}3{% else %}4{% endif %}", "{% if fa %}1{% elif z %}2{% else %}4{% endif %}", "{% if 1, 2 %}t{% endif %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for (a, b) in [(1,2),(3,4)] %}{{ a+b }} {% endfor %}", "{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in el %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in range(9) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% for x in [1,2] %}{% for y in [1,2,3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | replace('a','b') | upper %}abc{% endset %}{{ x }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c='y') }}{{ m(b=0, a=9) }}{{ m() }}{{ m(1, 2, 3) }}", "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
    "{% macro m(x) %}<{{ caller() }}|{{ x }}>{% endmacro %}{% call m(1) %}body {{ s }}{% endcall %}", "{% macro m() %}{{ caller('a', 2) }}{% endmacro %}{% call(x, y) m() %}{{ x }}-{{ y }}{% endcall %}", "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 2 %}{{ q }}{% endwith %}{{ q }}", "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}",
    "{% generation %}abc {{ s }}{% endgeneration %}", "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "{% for x in [[1,[2]],[3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "{% for i in nested.x.y recursive %}{{ loop.depth }}{{ loop([5]) if loop.depth < 3 }}{% endfor %}", "{% if t %}{{ s|nosuch }}{% endif %}", "{% if fa %}{{ s|nosuch }}{% endif %}ok", "{% if fa %}{{ s is nosuch }}{% endif %}ok",
    # errors
    "{{ s", "{% if t %}", "{% if t %}x", "{% for x in l %}", "{% endif %}", "{% else %}", "{% for x in l %}{% endif %}", "{{ }}", "{% %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, 2 }}", "{{ {'a' 1} }}", "{{ 'abc }}", "{# abc", "{% raw %}x", "{% nosuch %}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set a.b.c = 2 %}", "{% set x %}", "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{% call s %}{% endcall %}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}",
    "{{ a b }}", "{{ a.'b' }}", "{{ s|nosuch }}", "{{ s is nosuch }}", "{{ s| }}", "{{ s is }}", "{{ 1 is odd is even }}", "{{ $ }}", "{{ a ! b }}", "{{ a & b }}", "{% for loop in l %}{% endfor %}", "{% for x of l %}{% endfor %}", "{% for in l %}{% endfor %}", "{% if %}{% endif %}", "{{ 'a' if }}",
    "{% set x = %}", "{% else if t %}", "{{ not }}", "{{ [1 2] }}", "{{ l[ }}", "{{ l[] }}", "{{ d. }}", "{% block x %}{% endblock %}{% nosuch %}", "{% if t %}a{% endfor %}",
]

EVAL = [
    # printing
    "{{ t }} {{ fa }} {{ nil }} {{ n }} {{ f }} {{ big }} {{ small }} {{ z }} {{ neg }}", "{{ l }} {{ el }} {{ d }} {{ ed }} {{ mixed }} {{ nested }}", "{{ [s, q, u] }}", "{{ (1, 'a') }} {{ ('a',) }}", "{{ range(3) }} {{ range(1, 9, 2) }} {{ d.keys() }} {{ d.values() }} {{ ed.items() }}", "{{ undefined_thing }}|{{ [undefined_thing] }}",
    "{{ 1.0 }} {{ 100.0 }} {{ 1e15 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ -0.0 }} {{ 0.1 + 0.2 }} {{ 1e300 * 1e300 }} {{ -1e300 * 1e300 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 12345.678 }}", "{{ namespace(a=1, b='x') }}",
    "{{ ['\\'', '\"', '\\'\"', '\\n', '\\\\', '\\x00\\x1f\\x7f\\xa0\\xad', '\\u200b', '\\U0001F600', '\\ue000'] }}",
    # names and scopes
    "{{ missing }}|{{ missing is defined }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ d.missing }}", "{{ d.missing.x }}", "{{ nil.x }}", "{{ nil.x.y }}", "{{ nil['x'] }}", "{{ n.x }}", "{{ s.nosuch }}", "{{ s['nosuch'] }}", "{{ l['a'] }}", "{{ l.a }}", "{{ missing() }}", "{{ s() }}", "{{ d.nosuch() }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ missing ~ 'x' }}", "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}", "{{ missing < 1 }}", "{{ missing|length }}", "{% for x in missing %}{{ x }}{% else %}e{% endfor %}", "{{ missing[0] }}", "{{ -missing }}", "{{ 'a' in missing }}", "{{ missing in l }}", "{{ not missing }} {{ missing or 'd' }} {{ missing and 1 }}", "{{ missing[1:] }}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y }}", "{% for i in l %}{{ y }}{% set y = i %}{{ y }};{% endfor %}", "{% if t %}{% set x = 5 %}{% endif %}{{ x }}", "{% for i in [1] %}{% if t %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner }}", "{% set n = 1 %}{{ n }}",
    "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% set ns = namespace(d, k=2) %}{{ ns.b }}{{ ns.k }}{{ ns['a'] }}{{ ns.zz }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace(a=1) %}{% set ns.a %}block{% endset %}{{ ns.a }}", "{{ _private }}", "{% set _x = 3 %}{{ _x }}", "{{ under._x }} {{ under['_x'] }} {{ under['__y'] }}", "{{ under.__class__ }}", "{{ under.__class__.__name__ }}", "{{ s.__len__() }}", "{{ ''.__class__.__mro__ }}", "{{ under['__class__'] }}|",
    # loop variables
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}", "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem.foo }}{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in l %}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}", "{{ loop }}", "{% for x in l %}{{ loop.nosuch }}{% endfor %}", "{% for x in 'añ🌍' %}{{ x }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1,2,3)] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "{% set a, b = 1 %}", "{% for x in range(3) if loop %}{% endfor %}", "{% for x in l %}{{ loop|length }}{% endfor %}", "{% set ns = namespace(l=none) %}{% for x in l %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}",
    # arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 1 - 1.0 }} {{ true + true }} {{ 2.0 ** 0.5 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' - 'b' }}", "{{ none + 1 }}", "{{ l + [4] }} {{ (1,) + (2,) }}", "{{ l + (4,) }}", "{{ l + 1 }}", "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 3 }} {{ 'x' * -1 }} {{ (1,) * 2 }} {{ 'a' * true }}", "{{ 'a' * 1.5 }}", "{{ l * l }}", "{{ -'a' }}", "{{ -true }} {{ +1.5 }} {{ -0 }}", "{{ d + d }}", "{{ 5 - 3 - 1 }} {{ 2 * 3 % 4 }} {{ 100 // 7 // 2 }}",
    # comparison
    "{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == false }} {{ [1] == [1.0] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1} }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ 'a' == 'a' }} {{ '' == none }}", "{{ 'a' < 'b' }} {{ 'B' < 'a' }} {{ [1, 2] < [1, 3] }} {{ [1] < [1, 2] }} {{ 'é' > 'z' }} {{ (1, 'a') <= (1, 'a') }} {{ 1 < 1.5 }} {{ true > false }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1] < ['a'] }}", "{{ d < d }}", "{{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'b' in d }} {{ 1 in [1.0] }} {{ none in [none] }} {{ 'x' not in ls }} {{ 3 in range(5) }} {{ 'a' in d.keys() }} {{ 2 in d.values() }} {{ ('b', 1) in d.items() }}", "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ 1 in none }}", "{{ [] in d }}", "{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}", "{{ range(3) == range(0, 3) }} {{ range(3) == [0,1,2] }} {{ d.items() == d.items() }}", "{{ m == m }} {{ 'x' is sameas 'x' }} {{ none is sameas none }} {{ 1 is sameas 1.0 }}",
    # % formatting
    "{{ '%s and %s' % ('a', 1) }} {{ '%s' % l }} {{ '%s' % none }} {{ '%d' % 3.9 }} {{ '%5d|%-5d|%05d' % (42, 42, 42) }} {{ '%.2f' % 3.14159 }} {{ '%5.1f|' % 2.25 }} {{ '%x %X %o' % (255, 255, 8) }} {{ '%r' % 'q' }} {{ '%%' % () }} {{ '%+d' % 5 }} {{ '%e' % 12345.678 }} {{ '%g' % 0.00001 }}", "{{ '%(a)s-%(b)03d' % {'a': 'x', 'b': 7} }}", "{{ '%s' % ('a', 'b') }}", "{{ '%s %s' % 'a' }}", "{{ '%d' % 'a' }}", "{{ '%q' % 1 }}", "{{ '%' % 1 }}", "{{ 'abc' % () }} {{ 'abc' % l }}", "{{ 'abc' % 1 }}", "{{ '%*d' % (5, 3) }} {{ '%.3s|' % 'abcdef' }} {{ '%10s|%-10s|' % (u[:3], 'é') }} {{ '%c%c' % ('a', 98) }} {{ '%#x' % 255 }} {{ '% d' % 5 }} {{ '%i' % true }}", "{{ '%(x)s' % {'a': 1} }}",
    # subscripts
    "{{ d['items'] }} {{ d.items is callable }} {{ d['b'] }} {{ d['nosuch'] }} {{ s[0] }}{{ s[-1] }}{{ s[99] }} {{ u[7] }}", "{{ l[1.0] }}", "{{ l[true] }}", "{{ l[none] }}|{{ 5[0] }}|{{ none[0] }}", "{{ d[[]] }}", "{{ {1: 'a'}[1] }} {{ {1: 'a'}[1.0] }} {{ {none: 'n'}[none] }} {{ {(1,2): 't'}[(1,2)] }} {{ {true: 'x'}[1] }}", "{{ {[]: 1} }}", "{{ {'a': 1, 'a': 2} }} {{ {1: 'a', true: 'b'} }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ n[1:] }}", "{{ d[1:] }}", "{{ s['upper']() }} {{ d['keys']()|list }}", "{{ d.items()[0] }}|", "{{ range(5)[-1] }} {{ range(5)[9] }}|", "{{ (l)[0] }} {{ [1,2][1] }} {{ 'abc'[1] }} {{ {'a': [1]}.a[0] }}", "{{ l[1, 2] }}|", "{{ u[-3:] }} {{ u[:0] }}|{{ ''[0:5] }}|{{ ''[::-1] }}|",
    # calls
    "{{ range(0) }}{{ range(5, 0, -2)|list }} {{ range(-3)|list }}", "{{ range() }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range(1.5) }}", "{{ range(100001) }}", "{{ range(10 ** 9)|length }}", "{{ range(100000)|length }}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('p', 1)]) }} {{ dict() }}", "{{ dict([1]) }}", "{{ namespace(1) }}", "{{ raise_exception('boom') }}", "{{ raise_exception('a ' ~ 1) if n == 7 }}", "{{ 'ok' if raise_exception is defined }}", "{{ strftime_now('%%') }}", "{{ strftime_now is defined and strftime_now is callable }}", "{% set f = s.upper %}{{ f() }}", "{% set g = d.get %}{{ g('b') }}{{ g('zz', 5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(zz=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[5]) }}{{ m(**{'a': 6}) }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(1, *[2]) }}{{ m(*(3, 4)) }}{{ m(a=1, **{'b': 2}) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% macro m() %}{% endmacro %}{{ m }} {{ m.name }} {{ m is callable }}", "{{ l.append(4) }}", "{{ d.update({'x': 1}) }}", "{{ d.pop('b') }}", "{{ l.pop() }}", "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}", "{{ l.sort() }}", "{{ d.setdefault('q', 1) }}", "{{ l.append is defined }} {{ l.append }}|", "{{ d.clear }}|{{ d.pop is defined }}", "{{ s.format }}x"[:0] + "{{ s.nosuch() }}",
    "{% set m = {'upper': 1} %}{{ m.upper }}", "{{ loop() }}", "{{ (s ~ n).lower() }}", "{{ dict(a=1).a }} {{ dict(a=1).items()|list }}", "{{ 'a'.upper().lower().upper() }}", "{{ caller }}|{{ self is defined }}"[:14], "{{ varargs is defined }} {{ kwargs is defined }}", "{% for x in l %}{{ loop() }}{% endfor %}",
    "{% set x = namespace(v=[]) %}{% for i in range(3) %}{% set x.v = x.v + [i] %}{% endfor %}{{ x.v }}", "{% set a = 1 %}{% set b = a %}{% set a = 2 %}{{ a }}{{ b }}", "{{ [x for x in l] }}", "{{ lambda }}|{{ lipsum is defined }}"[:12], "{{ 1 if missing else 2 }} {{ 'y' if el else 'n' }}{{ 'y' if ed else 'n' }}{{ 'y' if '' else 'n' }}{{ 'y' if 0.0 else 'n' }}{{ 'y' if range(0) else 'n' }}{{ 'y' if l|select else 'n' }}{{ 'y' if el|select else 'n' }}{{ 'y' if ed.items() else 'n' }}",
    "{{ (1 if fa).x }}", "{{ (1 if fa) is defined }}", "{{ nested['x']['y'][1]['z'] }} {{ nested.x.y.1.z }}", "{{ ('<b>'|safe) + '<i>' }} {{ '<i>' + ('<b>'|safe) }} {{ ('<b>'|safe) ~ '<i>' }} {{ ('<b>'|safe) * 2 }} {{ ('a<b>'|safe)[1:] + '<' }} {{ ['<b>'|safe] }} {{ '%s' % ('<b>'|safe) }} {{ ('%s'|safe) % '<' }}",
]

TEXT_FILTERS = ["upper", "lower", "capitalize", "title", "trim", "length", "string", "escape", "e", "forceescape", "safe", "wordcount", "reverse", "list", "first", "last", "urlencode", "indent", "tojson", "int", "float", "unique|list", "count", "abs", "round", "default", "sort", "join('-')", "max", "min", "sum", "items|list", "dictsort", "select|list", "map('upper')|list"]
TESTED = ["s", "empty", "u", "n", "f", "t", "nil", "l", "ls", "d", "missing", "mixed", "range(3)", "people", "(1, 2)", "d.items()", "l|select"]
TESTS = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "iterable", "sequence", "callable", "escaped", "lower", "upper", "odd", "even", "filter", "test"]

BUILTINS = [
    "{{ [%s] }}" % ", ".join(f"{v} is {test}" for v in TESTED) for test in TESTS if test not in ("odd", "even")
] + ["{{ %s|%s }}" % (v, f) for f in TEXT_FILTERS for v in ("s", "empty", "u", "n", "neg", "f", "nil", "ls", "d", "missing", "t")
     if not (f in ("reverse", "items|list") and v not in ("s", "empty", "u"))] + [
    "{{ 3 is odd }} {{ 4 is even }} {{ -1 is odd }} {{ 2.0 is even }} {{ true is odd }}", "{{ 'a' is odd }}", "{{ none is even }}", "{{ 9 is divisibleby 3 }} {{ 9 is divisibleby 2 }}", "{{ 9 is divisibleby 0 }}", "{{ 9 is divisibleby }}", "{{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 1 is gt 2 }} {{ 1 is ge 1 }} {{ 1 is ne 2 }} {{ 1 is greaterthan(0) }} {{ 1 is lessthan(0) }} {{ 1 is equalto 1 }}", "{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }}", "{{ 'ABC1' is upper }} {{ '123' is upper }} {{ 'aBc' is lower }} {{ 'ß' is lower }}", "{{ 'ǅ' is upper }} {{ 'ǅ' is lower }}",
    # strings
    "{{ sp|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 5|trim }}|{{ '\\u2003a\\x1c'|trim }}|{{ 'abc'|trim('') }}", "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ s|replace('', '-') }} {{ s|replace('zz', 'y') }} {{ 11|replace(1, 2) }} {{ s|replace('', '-', 2) }} {{ s|replace(old='o', new='0') }} {{ ''|replace('', 'x') }}", "{{ s|replace('l') }}", "{{ 'a-b (c)[d]{e}<f>\\ttab new'|title }} {{ \"it's o'clock\"|title }} {{ 'ßtraße ǆx'|title }}", "{{ 'hELLO wORLD'|capitalize }} {{ 'ßx'|capitalize }} {{ 'ǆX'|capitalize }} {{ 'ΑΣ ΣΑΣ'|lower }} {{ 'ﬁ'|upper }}",
    "{{ lines|indent }}", "{{ lines|indent(2, true) }}", "{{ lines|indent(2, true, true) }}", "{{ 'a\\n\\nb\\n'|indent(1, blank=true) }}|", "{{ 'a\\nb'|indent('> ') }}", "{{ 'a\\nb'|indent(width=2, first=true) }}", "{{ 5|indent }}", "{{ none|indent }}", "{{ ''|indent(2, true) }}|", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ 'foobarbazqux'|truncate(5, end='…', leeway=0) }} {{ 'x'|truncate(3) }}", "{{ 'abc'|truncate(2) }}", "{{ 'ab'|center(7) }}|{{ 'abc'|center(6) }}|{{ 'abcd'|center(7) }}|{{ 'x'|center(2) }}|{{ 5|center(4) }}|", "{{ 'The quick  brown_fox, isn\\'t it 42 ö'|wordcount }}", "{{ '%s-%s'|format('a', 1) }} {{ '%(k)s'|format(k=2) }} {{ 'x'|format }}", "{{ '%s'|format(1, k=2) }}", "{{ html|escape }} {{ html|e|e }} {{ html|safe|e }} {{ html|e|forceescape }} {{ 5|e }} {{ (html|e)|upper }} {{ none|e }}", "{{ 'a b/c?d=é&'|urlencode }} {{ {'a b': 'c/d', 'x': 1}|urlencode }} {{ [('k', 'v v')]|urlencode }} {{ 5|urlencode }}", "{{ [1]|urlencode }}",
    # numbers
    "{{ '42'|int }} {{ ' 42 '|int }} {{ '4_2'|int }} {{ '-7'|int }} {{ '+7'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 'x'|int(default=6) }} {{ ''|int }} {{ '0x1F'|int(base=16) }} {{ '1F'|int(0, 16) }} {{ '0b11'|int(0, 2) }} {{ '077'|int }} {{ '1e3'|int }} {{ 3.99|int }} {{ -3.99|int }} {{ true|int }} {{ none|int }} {{ [1]|int }} {{ 'inf'|int }} {{ 'nan'|int(9) }} {{ '0x1F'|int }} {{ '4__2'|int }} {{ '_4'|int }} {{ '- 7'|int }}", "{{ 1e400|int }}", "{{ missing|int }}", "{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1) }} {{ '1e3'|float }} {{ ' .5 '|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ 3|float }} {{ none|float(2.5) }} {{ '1_0.5'|float }} {{ '0x10'|float }} {{ ''|float }} {{ '1.5.2'|float }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ -2.5|round }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, 'ceil') }} {{ 42|round }} {{ 42|round(0, 'ceil') }} {{ 1234.5|round(-2) }} {{ 1250|round(-2) }} {{ 1350|round(-2) }} {{ 0.5|round }} {{ 1.5|round }} {{ true|round }} {{ 42.55|round|int }}", "{{ 2.5|round(0, 'up') }}", "{{ 'a'|round }}", "{{ -5|abs }} {{ 5.5|abs }} {{ (-5.5)|abs }} {{ true|abs }}", "{{ 'a'|abs }}",
    # defaults
    "{{ missing|default('x') }} {{ missing|d('x') }} {{ nil|default('x') }} {{ nil|default('x', true) }} {{ ''|default('x', boolean=true) }} {{ d.zz|default(d.b) }} {{ missing|default }}|{{ s|default('x') }} {{ missing|default(none) }}", "{{ missing.a|default('x') }}",
    # JSON
    "{{ mixed|tojson }} {{ d|tojson }} {{ u|tojson }} {{ q|tojson }} {{ el|tojson }} {{ ed|tojson }} {{ (1, 2)|tojson }} {{ 1.0|tojson }} {{ 1e-5|tojson }} {{ 1e400|tojson }} {{ none|tojson }} {{ true|tojson }} {{ '</script>\\u2028'|tojson }}", "{{ u|tojson(ensure_ascii=true) }} {{ u|tojson(true) }} {{ '\\x7f\\x80'|tojson(true) }}", "{{ mixed|tojson(indent=2) }}", "{{ nested|tojson(indent=4) }}", "{{ nested|tojson(indent='--') }}", "{{ [[], {}, [{}]]|tojson(indent=1) }}", "{{ nested|tojson(indent=0) }}", "{{ d|tojson(separators=(',', ':')) }} {{ l|tojson(separators=[';', '=']) }}", "{{ nested|tojson(indent=2, separators=(' ,', '= ')) }}", "{{ d|tojson(sort_keys=true) }} {{ people|tojson(sort_keys=true) }}", "{{ {1: 'a', none: 'b', true: 'c', 2.5: 'd'}|tojson }}", "{{ {(1,2): 'a'}|tojson }}", "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ range(3)|tojson }}", "{{ d.items()|tojson }}", "{{ (l|select)|tojson }}", "{{ namespace(a=1)|tojson }}", "{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}", "{{ '\\ud83d'|length }}"[:0] + "{{ 'a\\u0000b\\b\\f\\r'|tojson }}", "{{ l|tojson|length }} {{ (l|tojson)[1:-1] }} {{ l|tojson + 'x' }} {{ 'a<'|tojson|safe }}", "{{ 9223372036854775807|tojson }} {{ 1e16|tojson }} {{ 123456789.125|tojson }}", "{{ l|tojson(nosuch=1) }}",
    # sequences
    "{{ l|length }} {{ s|length }} {{ u|length }} {{ d|count }} {{ range(7)|length }} {{ d.items()|length }}", "{{ n|length }}", "{{ none|length }}", "{{ (l|select)|length }}", "{{ l|join(', ') }} {{ l|join }} {{ mixed|join('|') }} {{ 'abc'|join('-') }} {{ people|join(',', attribute='name') }} {{ l|join(d='+') }} {{ d|join(',') }} {{ l|join(1) }}", "{{ n|join }}", "{{ l|first }} {{ l|last }} {{ el|first }}|{{ el|last }}|{{ s|first }}{{ s|last }} {{ d|first }} {{ d|last }} {{ (l|map('string'))|first }} {{ range(5)|last }}", "{{ (l|select)|last }}", "{{ n|first }}", "{{ el|first is defined }}", "{{ (el|first).x }}", "{{ l|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ (1,2)|reverse|list }} {{ d|reverse|list }} {{ (l|select)|reverse|list }} {{ range(3)|reverse|join }}", "{{ n|reverse }}", "{{ s|list }} {{ d|list }} {{ range(3)|list }} {{ missing|list }} {{ (1,)|list }} {{ d.values()|list }}", "{{ n|list }}",
    "{{ l|sort }} {{ l|sort(reverse=true) }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ ls|sort(true) }} {{ 'hello'|sort }} {{ people|sort(attribute='age')|map(attribute='name')|join(',') }} {{ people|sort(attribute='age', reverse=true)|map(attribute='name')|join(',') }} {{ people|sort(attribute='age,name')|map(attribute='name')|join(',') }} {{ d|sort }} {{ [(2,'b'),(1,'z'),(2,'a')]|sort }}", "{{ mixed|sort }}", "{{ people|sort(attribute='city') }}", "{{ [none, 1]|sort }}", "{{ [missing, 1]|sort }}", "{{ [3,1.5,true]|sort }}", "{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(reverse=true) }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ {'x': 'B', 'y': 'a'}|dictsort(false, 'value') }}", "{{ d|dictsort(by='nope') }}", "{{ l|dictsort }}", "{{ ['b','A','a','B']|unique|list }} {{ ['b','A','a']|unique(true)|list }} {{ [1, 1.0, true, '1']|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ 'aab'|unique|join }}", "{{ [[1]]|unique|list }}",
    "{{ l|min }} {{ l|max }} {{ ls|min }} {{ ls|max }} {{ ls|min(case_sensitive=true) }} {{ people|max(attribute='age') }} {{ el|min }}| {{ 'hello'|max }} {{ [true, 2]|max }} {{ people|min(attribute='age') }}", "{{ mixed|max }}", "{{ l|sum }} {{ people|sum(attribute='age') }} {{ l|sum(start=10) }} {{ el|sum }} {{ [[1],[2]]|sum(start=[]) }} {{ [1.5, 2]|sum }}", "{{ ls|sum }}", "{{ ls|sum(start='') }}", "{{ people|sum(attribute='nosuch') }}", "{{ people|map(attribute='name')|list }} {{ people|map(attribute='city')|list }} {{ people|map(attribute='city', default='?')|join(',') }} {{ ls|map('upper')|join }} {{ ['1','x']|map('int', default=9)|list }} {{ l|map('string')|list }} {{ [nested]|map(attribute='x.y.1.z')|list }} {{ [[1,2]]|map(attribute=1)|list }} {{ [l, ls]|map('join', '+')|list }} {{ el|map('nosuch')|list }} {{ [[1,[2,3]]]|map(attribute='1.0')|list }}", "{{ l|map|list }}", "{{ l|map('nosuch')|list }}", "{{ l|map(attribute='a', zz=1)|list }}", "{{ [none]|map(attribute='a.b')|list }}", "{{ [1,0,2,none,'']|select|list }} {{ [1,0,2]|reject|list }} {{ [1,2,3]|select('odd')|list }} {{ [1,2,3]|reject('odd')|list }} {{ [1,2,3]|select('gt', 1)|list }} {{ ls|select('in', ['a','b'])|list }} {{ mixed|select('string')|list }} {{ [1,2]|select('divisibleby', num=2)|list }} {{ missing|select|list }}", "{{ l|select('nosuch')|list }}", "{{ people|selectattr('city')|map(attribute='name')|list }} {{ people|selectattr('city', 'defined')|list|length }} {{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|rejectattr('age', 'eq', 30)|map(attribute='name')|list }} {{ people|rejectattr('city')|list }} {{ people|selectattr('age', '>', 29)|list|length }} {{ people|selectattr('city', 'undefined')|map(attribute='name')|first }} {{ people|selectattr('name', 'in', ['Ann'])|list }}", "{{ people|selectattr|list }}", "{{ people|selectattr('a.b')|list }}", "{{ people|selectattr('city', 'lower')|list }}",
    "{{ l|select }}"[:0] + "{% set g = l|select %}{{ g|list }}{{ g|list }}", "{% set g = [1,2,3]|map('string') %}{{ g|first }}{{ g|join }}", "{% set g = l|reverse %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}", "{% set g = [1,2,3]|select %}{{ 2 in g }}{{ g|list }}", "{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}", "{{ l|map('string') is iterable }} {{ l|map('string') is sequence }}", "{{ (l|select)[0] }}|", "{{ d|items|list }} {{ missing|items|list }}", "{{ l|items|list }}", "{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}", "{% for c, g in people|groupby('city', default='-') %}{{ c }}:{{ g|map(attribute='name')|join(',') }};{% endfor %}", "{% for g in people|groupby('age') %}{{ g.grouper }}={{ g.list|length }}={{ g[0] }};{% endfor %}", "{{ people|groupby('age')|first|length }} {{ [{'a':'X'},{'a':'x'}]|groupby('a', case_sensitive=true)|length }} {{ [{'a':'X'},{'a':'x'}]|groupby('a') }}", "{{ people|groupby('city') }}", "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, '-')|list }} {{ el|batch(2)|list }}", "{{ range(7)|slice(3)|list }} {{ range(7)|slice(3, '-')|list }} {{ range(6)|slice(3, '-')|list }} {{ el|slice(2)|list }}", "{{ l|slice(0)|list }}", "{{ s|attr('upper')() }} {{ d|attr('b') }}|{{ d|attr('keys') is callable }}", "{{ l|attr('append') }}|", "{{ loop|attr('x') }}",
    "{{ s|upper(1) }}", "{{ s|replace }}", "{{ s|trim(chars='Hd') }}", "{{ s|trim(nope=1) }}", "{{ l|join(',', d=';') }}", "{{ s is defined(1) }}", "{{ 1 is in }}",
    # string methods
    "{{ sp.strip() }}|{{ sp.lstrip() }}|{{ sp.rstrip() }}|{{ 'xyax'.strip('xy') }}|{{ 'abc'.strip(none) }}|{{ 'éaé'.strip('é') }}|{{ '\\n\\n a \\n'.lstrip('\\n') }}|", "{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'abc'.split('bc') }} {{ 'aXbXc'.split('X', maxsplit=1) }} {{ 'aXbXc'.split(sep='X') }} {{ 'a b'.split(' ', 0) }} {{ ' a '.split(none, 0) }}", "{{ 'a'.split('') }}", "{{ 'a'.split(1) }}", "{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit() }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'abc'.rsplit('x') }} {{ 'a,b,c'.rsplit(',') }} {{ 'a  b '.rsplit(none, 0) }}", "{{ lines.splitlines() }} {{ 'a\\n'.splitlines() }} {{ ''.splitlines() }} {{ 'a\\nb\\r\\n'.splitlines(true) }} {{ 'a\\u2028b\\x85c'.splitlines() }}", "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}", "{{ s.startswith('Hell') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('') }} {{ s.startswith('World', 6) }} {{ s.endswith('Hello', 0, 5) }} {{ ''.endswith('a') }} {{ s.startswith('', 99) }}", "{{ s.startswith(1) }}", "{{ s.startswith(['H']) }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'abc'.removeprefix('') }} {{ 'abc'.removesuffix('zz') }}", "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('世') }} {{ s.find('o', 5) }} {{ s.find('o', 5, 7) }} {{ s.find('') }} {{ s.rfind('') }} {{ s.find('', 99) }} {{ s.index('W') }} {{ s.rindex('l') }} {{ s.find('l', -3) }} {{ u.rfind('🌍') }}", "{{ s.index('zz') }}", "{{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ s.count('l', 4) }} {{ u.count('') }}",
    "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '.') }} {{ 'aaa'.replace('a', '') }} {{ 'aaa'.replace('aa', 'b') }} {{ 'é'.replace('', '-') }}", "{{ s.replace('l') }}", "{{ s.replace(1, 2) }}", "{{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ ','.join(d) }}", "{{ ','.join([1]) }}", "{{ ','.join(1) }}", "{{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ u.capitalize() }} {{ u.swapcase() }} {{ \"they're BILL's\".title() }} {{ 'ŉ ǰ ﬃ'.upper() }}", "{{ '12'.isdigit() }} {{ '1.2'.isdigit() }} {{ ''.isdigit() }} {{ 'aé'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \\t'.isspace() }} {{ ''.isspace() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ '٣'.isdecimal() }} {{ '世'.isalpha() }} {{ 'a b'.isalpha() }}", "{{ 'ab'.ljust(5) }}|{{ 'ab'.rjust(5, '*') }}|{{ 'ab'.center(5, '-') }}|{{ 'abc'.center(6, '-') }}|{{ '-42'.zfill(6) }}|{{ '+'.zfill(3) }}|{{ '42'.zfill(1) }}|{{ 'é'.ljust(3, '.') }}|", "{{ 'a'.ljust(5, 'ab') }}", "{{ '{} {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}-{{}}'.format(x=5) }} {{ '{}'.format(l) }} {{ ''.format() }}", "{{ '{}'.format() }}", "{{ '{'.format() }}", "{{ s.upper(1) }}", "{{ s.strip(1) }}", "{{ s.encode }}"[:0] + "{{ s.casefold() }}",
    # list, tuple and dict methods
    "{{ l.index(2) }} {{ l.count(3) }} {{ (1,2,1).count(1) }} {{ (1,2).index(2) }} {{ range(5).index(3) }} {{ l.copy() }} {{ d.copy() }}", "{{ l.index(99) }}", "{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 9) }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ ed.items()|list }}", "{{ d.get() }}", "{{ d.get([]) }}", "{{ d.get(1) }} {{ {1: 2}.get(true) }}", "{{ d.keys(1) }}", "{{ d.nosuch }}|{{ l.nosuch }}|{{ (1,).append }}|", "{{ range(5).start }} {{ range(1, 5, 2).stop }} {{ range(1, 5, 2).step }}",
]

SNIPPETS = {"parse": PARSE, "eval": EVAL, "builtins": BUILTINS}

# ---- conversations ------------------------------------------------------------------------------

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Wetter für eine Stadt <jetzt>",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City's name"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": ["integer", "null"]}}, "required": ["city"]}, "strict": True}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds\nnumbers", "parameters": {"type": "object", "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}},
            "opts": {"type": "object", "properties": {"round": {"type": "boolean"}}}}}}},
]


def call(name, arguments, ident="call_0001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


U = {"role": "user", "content": "Wie ist das Wetter in Köln? 🌧"}
SYS = {"role": "system", "content": " You are terse. \n"}
A = {"role": "assistant", "content": "Es regnet."}
CONVERSATIONS = {
    "user": [U],
    "system": [SYS, U],
    "developer": [{"role": "developer", "content": "Be kind."}, U],
    "two turns": [SYS, U, A, {"role": "user", "content": "Und morgen?"}],
    "ends in assistant": [U, A],
    "empty texts": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, U],
    "markers in user text": [{"role": "user", "content": "<|assistant|></think><｜User｜> {{ 7*7 }} {% if %}\n"}, A, U],
    "one call": [U, {"role": "assistant", "content": None, "tool_calls": [call("get_weather", '{"city": "Köln", "days": 2}')]},
                 {"role": "tool", "tool_call_id": "call_0001", "content": "12 °C\n"}],
    "call with text": [U, {"role": "assistant", "content": "Let me look.", "tool_calls": [call("get_weather", {"city": "Köln"})]},
                       {"role": "tool", "tool_call_id": "call_0001", "content": '{"t": 12.50}'}, A, U],
    "several calls": [SYS, U, {"role": "assistant", "tool_calls": [
        call("get_weather", '{"city": "Köln", "unit": "C"}'), call("add", '{"numbers": [1, 2.0, 1e-7], "opts": {"round": true, "x": null}}', "call_0002"),
        call("add", "", "call_0003")]},
        {"role": "tool", "tool_call_id": "call_0001", "content": "12"}, {"role": "tool", "tool_call_id": "call_0002", "content": "3"},
        {"role": "tool", "tool_call_id": "call_0003", "content": "0"}],
    "tool runs": [U, {"role": "assistant", "content": "", "reasoning_content": "first I look", "tool_calls": [call("get_weather", '{"city":"Köln"}')]},
                  {"role": "tool", "content": "rain", "tool_call_id": "call_0001"},
                  {"role": "assistant", "content": "Now add.", "reasoning_content": "\nthen add\n", "tool_calls": [call("add", '{"numbers":[]}')]},
                  {"role": "tool", "content": "0", "tool_call_id": "call_0001"}, {"role": "assistant", "content": "done", "reasoning_content": " last "}],
    "reasoning in the past": [U, {"role": "assistant", "content": "A1", "reasoning_content": "r1"}, {"role": "user", "content": "again"},
                              {"role": "assistant", "content": "A2", "reasoning_content": "r2"}],
    "reasoning in content": [U, {"role": "assistant", "content": "<think>\nhidden\n</think>\n\nshown"}, U,
                             {"role": "assistant", "content": "<think>more</think>x"}, {"role": "tool", "content": "t", "tool_call_id": "call_0001"}],
    "null content": [U, {"role": "assistant", "content": None}, U],
    "missing content": [U, {"role": "assistant"}, U],
    "wrong order": [U, U],
    "unknown role": [U, {"role": "critic", "content": "no"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "zwei"}]}, A, U],
    "named": [{"role": "user", "name": "Ann", "content": "hi"}, {"role": "assistant", "name": "Bot", "content": "yo", "stop": True}, U],
    "no messages": [],
}
TEMPLATES = ["chatml.jinja", "mini.jinja", "glm_tags.jinja", "deepseek_calls.jinja", "deepseek_switch.jinja", "kimi_sections.jinja",
             "llama_headers.jinja", "qwen_think.jinja", "strict_turns.jinja", "schema_types.jinja"]
KWARGS = {
    "mini.jinja": [{"enable_thinking": False}, {"enable_thinking": True}, {"clear_thinking": False}, {"clear_thinking": True}],
    "glm_tags.jinja": [{"enable_thinking": False}, {"enable_thinking": True, "reasoning_effort": "high"}, {"reasoning_effort": "low"}, {"clear_thinking": False}, {"clear_thinking": True}],
    "qwen_think.jinja": [{"enable_thinking": False}, {"enable_thinking": True}],
    "deepseek_switch.jinja": [{"thinking": True}, {"enable_thinking": True}, {"thinking": False}],
    "llama_headers.jinja": [{"date_string": "2 Feb 2025", "tools_in_user_message": False}, {"date_string": "x", "builtin_tools": ["python", "get_weather"]}],
}


def chats():
    for template in TEMPLATES:
        base = {"date_string": "29 Nov 2026"} if template == "llama_headers.jinja" else {}
        for name, messages in CONVERSATIONS.items():
            yield f"{template}: {name}", template, {"messages": messages, "kwargs": base}
        for name in ("user", "system", "several calls", "two turns"):
            yield f"{template}: {name}, tools", template, {"messages": CONVERSATIONS[name], "tools": TOOLS, "kwargs": base}
        yield f"{template}: no prompt", template, {"messages": CONVERSATIONS["two turns"], "add_generation_prompt": False, "kwargs": base}
        for kwargs in KWARGS.get(template, []):
            for name in ("tool runs", "reasoning in the past", "reasoning in content", "one call"):
                yield f"{template}: {name}, {kwargs}", template, {"messages": CONVERSATIONS[name], "tools": TOOLS, "kwargs": kwargs}


CHATS = list(chats())
