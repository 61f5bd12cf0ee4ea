"""Small templates, one or two constructs each. Each must render as Jinja2 renders it, or fail where it fails."""

VARIABLES = {
    "s": "  Hello, Wörld!\n", "empty": "", "n": 7, "neg": -3, "zero": 0, "x": 2.5, "big": 1e20, "small": 0.00001, "yes": True,
    "no": False, "nothing": None, "items": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, [4, "x'y"]]],
    "d": {"b": 1, "a": "two", "items": 3, "ключ": [None, True, 1.5], "get": 5},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cid", "age": 30, "admin": True}],
    "html": "<a href=\"x\">'&'</a>", "text": "line one\nline two\n\nline four", "emoji": "a👍🏽é\u0301漢字", "quote": "it's \"x\"\\\t\x01\u200b",
}  # fmt: skip

SNIPPETS = r"""
{{ s }}|{{ s|trim }}|{{ s.strip() }}|{{ s|length }}|{{ s|upper }}|{{ s.lower() }}
{{ n }} {{ neg }} {{ x }} {{ big }} {{ small }} {{ yes }} {{ no }} {{ nothing }} {{ missing }}
{{ items }} {{ nested }} {{ d }} {{ (1, 'a') }} {{ (1,) }} {{ [] }} {{ {} }} {{ () }}
{{ quote }} {{ [quote, emoji, "\n", "'", '"'] }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1e3 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789.125 }} {{ 1_000 }} {{ 1.5e-7 }} {{ 10 / 4 }} {{ 4 / 2 }}
{{ "a" ~ 1 ~ none ~ true ~ missing }} {{ "a" "b" 'c' }} {{ "ab" * 3 }} {{ [1] * 2 + [3] }} {{ 3 * "x" }}
{{ -n|abs }} {{ (-n)|abs }} {{ neg|abs }} {{ +n }} {{ --n }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ "a" != "b" }} {{ none == false }}
{{ 1 in items }} {{ 9 not in items }} {{ "ell" in s }} {{ "a" in d }} {{ "zz" in d }} {{ 1 in missing }} {{ not 1 in items }}
{{ yes and 5 }} {{ no and 5 }} {{ empty or "x" }} {{ items or 1 }} {{ not empty }} {{ not items and yes }} {{ none or missing or 0 }}
{{ "y" if yes else "n" }} {{ "y" if no }} {{ "a" if no else "b" if no else "c" }} {{ (1 if yes) + 1 }}
{{ items[0] }} {{ items[-1] }} {{ items[10] }} {{ items[1:] }} {{ items[::-1] }} {{ items[:-1] }} {{ items[-2:] }} {{ items[5:] }} {{ items[::2] }}
{{ emoji[0] }} {{ emoji[1] }} {{ emoji[-1] }} {{ emoji[::-1] }} {{ emoji[1:3] }} {{ emoji|length }} {{ "abc"[5:] }} {{ "abc"[-9:2] }} {{ "abcdef"[4:1:-1] }}
{{ d.a }} {{ d['a'] }} {{ d["b"] }} {{ d.missing }} {{ d['missing'] }} {{ d.ключ }} {{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 1) }} {{ d['items'] }} {{ d['get'] }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }},{% endfor %} {{ d.keys()|list }} {{ d.values()|list }} {{ d|list }} {{ d|length }}
{{ d|items|list }} {% for k, v in d|items %}{{ k }}{% endfor %} {{ d|dictsort }} {{ missing|items|list }}
{{ d|tojson }} {{ nested|tojson }} {{ quote|tojson }} {{ html|tojson }} {{ emoji|tojson }} {{ emoji|tojson(ensure_ascii=true) }} {{ none|tojson }} {{ x|tojson }} {{ yes|tojson }}
{{ d|tojson(indent=2) }} {{ [[], {}, [1]]|tojson(indent=4) }} {{ d|tojson(separators=(',', ':')) }} {{ users|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ [1]|tojson(indent="\t") }}
{{ users|map(attribute='name')|join(', ') }} {{ users|selectattr('admin')|map(attribute='name')|list }} {{ users|rejectattr('admin')|list|length }} {{ users|selectattr('age', 'gt', 26)|map(attribute='name')|list }}
{{ users|map(attribute='admin', default='-')|list }} {{ users|map(attribute='tags.0')|list|length }} {{ items|map('string')|list }} {{ words|map('upper')|join }} {{ items|select('odd')|list }} {{ items|reject('odd')|list }} {{ [0, 1, '']|select|list }}
{{ items|sort }} {{ items|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name')|length }}
{{ items|sum }} {{ users|sum(attribute='age') }} {{ items|max }} {{ items|min }} {{ words|max }} {{ []|max }} {{ items|first }} {{ items|last }} {{ []|first }} {{ s|first }} {{ [1.5, 2]|sum }}
{{ items|reverse|list }} {{ "abc"|reverse }} {{ items|list }} {{ "abc"|list }} {{ words|unique|list }} {{ [1, 1, 2]|unique|list }} {{ range(5)|batch(2)|list }} {{ range(3)|batch(2, 'x')|list }}
{{ text|indent }} {{ text|indent(2, true) }} {{ text|indent(width=1, blank=true) }} {{ text|indent("> ") }} {{ ""|indent(2) }}
{{ "a-b (c) d'e"|title }} {{ "hELLO wORLD"|capitalize }} {{ "hello world's x2y".title() }} {{ "ß ǆ ﬁ"|upper }} {{ "ÀÉ ΑΣ ΑΣΑ İ"|lower }}
{{ html|e }} {{ html|escape }} {{ html|safe }} {{ "a"|default("b") }} {{ missing|default("b") }} {{ empty|default("b") }} {{ empty|default("b", true) }} {{ none|d(1) }} {{ missing|d }} {{ none|default(1, boolean=true) }}
{{ "42"|int }} {{ " 42 "|int }} {{ "4.9"|int }} {{ "x"|int }} {{ "x"|int(5) }} {{ "ff"|int(0, 16) }} {{ 4.9|int }} {{ none|int }} {{ "2.5"|float }} {{ "x"|float }} {{ 3|float }} {{ "1e3"|float }} {{ true|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 2.675|round(2) }} {{ 1|string ~ 2|string }}
{{ "%s is %d"|format("x", 3) }} {{ "%05.2f|%-4s|%4s|%+d|%%"|format(3.14159, "a", "b", 3) }} {{ "%s" % "x" }} {{ "%s-%s" % (1, none) }} {{ "%(a)s" % {"a": 1} }} {{ "%r" % "x" }}
{{ "{} {} {x}".format(1, "b", x=none) }} {{ "{0}{0}".format("a") }} {{ "{{}}".format() }}
{{ "a,b,,c".split(",") }} {{ " a  b ".split() }} {{ "a,b,c".split(",", 1) }} {{ "a,b,c".rsplit(",", 1) }} {{ " a b  c ".rsplit(none, 1) }} {{ " a b  c ".split(none, 1) }} {{ "a\nb\r\nc".splitlines() }} {{ "abc".split("") }}
{{ "abcabc".replace("b", "X") }} {{ "abcabc".replace("b", "X", 1) }} {{ "abc".replace("", "-") }} {{ "aaa"|replace("a", "b", 2) }} {{ "xAx".find("A") }} {{ "é漢é".find("é") }} {{ "é漢é".rfind("é") }} {{ "abc".find("z") }} {{ "abab".count("ab") }} {{ "abc".index("z") }}
{{ "abc".startswith("ab") }} {{ "abc".endswith(("x", "c")) }} {{ "abc".startswith("b", 1) }} {{ "a-b-c".partition("-") }} {{ "a-b-c".rpartition("-") }} {{ "abc".partition("z") }} {{ "xxabcxx".strip("x") }} {{ "xxabcxx".lstrip("x") }} {{ "xxabcxx".rstrip("x") }}
{{ "12".isdigit() }} {{ "1a".isdigit() }} {{ "ab".isalpha() }} {{ "a1".isalnum() }} {{ " \n".isspace() }} {{ "Ab".isupper() }} {{ "AB".isupper() }} {{ "ab1".islower() }} {{ "".isalpha() }} {{ "5".zfill(3) }} {{ "-5".zfill(4) }} {{ "a".ljust(3) }}| {{ "a".rjust(3, '*') }} {{ "ab".center(5, '.') }} {{ "abc".center(6, '.') }}
{{ ", ".join(words) }} {{ "".join(["a"]) }} {{ "abc".removeprefix("a") }} {{ "abc".removesuffix("c") }} {{ "aBc".swapcase() }} {{ words.index("A") }} {{ items.count(3) }} {{ (1, 2).count(1) }}
{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ n is number }} {{ s is string }} {{ d is mapping }} {{ items is iterable }} {{ items is sequence }} {{ d is sequence }} {{ none is none }} {{ nothing is not none }} {{ n is iterable }} {{ s is iterable }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ yes is boolean }} {{ 1 is boolean }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ n is in [7] }} {{ n is eq 7 }} {{ n is gt(6) }} {{ "a" is lower }} {{ "A" is upper }} {{ n is sameas n }} {{ n is equalto 8 }} {{ raise_exception is callable }} {{ "upper" is filter }} {{ "odd" is test }}
{% if missing is defined and missing %}a{% elif items is not string and items %}b{% else %}c{% endif %} {% if not items %}x{% endif %}y
{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {{ loop.previtem }} {{ loop.nextitem }};{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %} {% for i in missing %}x{% else %}nothing{% endfor %} {% for c in "héy" %}{{ c }}.{% endfor %}
{% for i in items if i > 1 %}{{ i }}/{{ loop.length }}{{ loop.index }} {% else %}-{% endfor %}{% for i in items if i > 9 %}{{ i }}{% else %}-{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ range(2, 8, 3)|list }} {{ range(3, 0, -1)|list }}
{% for i in items %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %} {% for i in items %}{% for j in items %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %}
{% set a = 1 %}{% set b, c = 2, 3 %}{{ a }}{{ b }}{{ c }} {% set t = 1, 2 %}{{ t }} {% set blk %}x{{ a }}y{% endset %}{{ blk }}|{% set up | upper | trim %} ab {% endset %}{{ up }}|
{% set a = 1 %}{% for i in items %}{{ a }}{% set a = i %}{{ a }} {% endfor %}{{ a }}{% if yes %}{% set a = 5 %}{% endif %}{{ a }}
{% set ns = namespace(v=0, w='x') %}{% for i in items %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}{{ ns.w }} {{ ns.missing is defined }} {% set ns.new = [1] %}{{ ns.new }}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='q') }}{{ m(b=1, a=2) }}{{ m() }}{{ m.name }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }} {% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% macro m(a) %}{% set q = a ~ n %}{{ q }}{{ caller(a) }}{% endmacro %}{% call(v) m("x") %}<{{ v }}{{ n }}>{% endcall %}{{ q is defined }}{% call m('u') %}plain{% endcall %}
{% macro a() %}{{ late }}{% endmacro %}{% set late = 5 %}{{ a() }}{% set f = a %}{{ f()|length }} {{ a()|upper ~ '!' }}
{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% filter upper %}abc {{ s }}{% endfilter %} {% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a is defined }}
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%}  {{ x }}  {%- endraw -%}  z
{{ dict(a=1, b=2) }} {{ dict([('a', 1)]) }} {{ {'a': 1, 'a': 2} }} {{ {"k": n}.k }} {{ {'x': [1, 2]}['x'][1] }} {{ {1: 'a'}[1] }} {{ {true: 'a'}[1] }}
{% set j = joiner("|") %}{% for i in items %}{{ j() }}{{ i }}{% endfor %} {% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ (users|selectattr('zz')) and 'generators are true' }} {{ (users|selectattr('zz')|list) or 'lists are not' }} {% set g = items|map('string') %}{{ g|list }}{{ g|list }}
{{ items|join }} {{ users|join('-', attribute='name') }} {{ 5|string|length }} {{ "a b c"|wordcount }} {{ items|length > 2 }} {{ items|count }}
{{ "abc" in ["abc"] }} {{ ["a"] in [["a"]] }} {{ {"a": 1} == {"a": 1.0} }} {{ [1, 2] == (1, 2) }} {{ "1" == 1 }} {{ missing == missing2 }} {{ none is sameas none }}
{{ users[0].name }} {{ users.0.name }} {{ users[0]['tags'][0] }} {{ users[1].tags }} {{ (users|first).name }} {{ users[-1]["admin"] }} {{ users|map(attribute='age')|unique|list }}
{{ "x" if n == 7 and not no or missing }} {{ n if n is defined else 0 }} {{ (n, x)[0] }} {{ [n, *[1]] if false else 1 }}
{% generation %}a{{ n }}{% set inside = 1 %}{% endgeneration %}{{ inside is defined }}
{{ {"a": {"b": 1}}}} {{ {"a": {"b": {"c": 2}}}["a"]["b"]["c"] }}
{{ 'a' 'b' ~ 'c' }} {{ [1, 2,] }} {{ (1, 2,) }} {{ {"a": 1,} }}
{{ strftime_now("%Y") }} {{ strftime_now("") }} {{ namespace is defined }} {{ lipsum is defined and false }}
{{ missing.attribute }}
{{ missing["x"] }}
{{ missing + 1 }}
{{ missing() }}
{{ missing < 1 }}
{{ d.missing.deeper }}
{{ none.x }}
{{ none.x.y }}
{{ n.x }}
{{ n() }}
{{ 1 + "a" }}
{{ "a" + 1 }}
{{ [1] + (1,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 < "a" }}
{{ [1, "a"]|sort }}
{{ 1 in 5 }}
{{ 1 in "a" }}
{{ 5|length }}
{{ none|length }}
{{ 5|list }}
{{ missing|tojson }}
{{ d.keys()|tojson }}
{{ items.append(4) }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ items.append is defined }}
{{ ''.__class__ }}
{{ ''.__class__.__mro__ }}
{{ raise_exception('No!') }}
{% if no %}{{ raise_exception('No!') }}{% endif %}fine
{% for i in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% set s.x = 1 %}
{% set q.x = 1 %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{{ "%d"|format("x") }}
{{ "%s %s"|format("x") }}
{{ "%s" % (1, 2) }}
{{ ""[0].x }}
{{ items["x"].y }}
{{ items[missing] }}
{{ range(200000)|length }}
{{ items[::0] }}
{{ "x".join([1]) }}
{{ {[1]: 2} }}
{{ missing|int }}
{{ (missing|map('upper'))|list }}
{{ "a".split(1) }}
{{ users|map('nope')|list }}
{{ [missing]|join('-') }} {{ [none, true]|join('-') }}
{{ -missing }}
{% if %}{% endif %}
{% if yes %}
{% endif %}
{% endfor %}
{% for i in items %}{% endif %}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ "abc }}
{{ a b }}
{{ | upper }}
{{ a. }}
{% set %}
{% set 1 = 2 %}
{% unknown %}
{{ n|unknown }}
{{ n is unknown }}
{# never closed
{% raw %}
{{ n
{% break %}
{{ @ }}
{% macro %}{% endmacro %}
{{ f(a=1, 2) }}
""".strip("\n").split("\n")

# Those with newlines in them.
MULTILINE = [
    "a {#- comment -#} b {# c #} d{# multi\nline #}\ne\n  {% if yes %}\n  indented\n    {%- if yes %} x {% endif -%}\n  y\n  {% endif %}\nz\n",
    "  {%+ if yes %}keep{% endif +%}\nnext\n  {{ n }}\n{%- for i in items %}\n\n  {{ i }}\n{%- endfor %}\n\nend\n\n",
    "{% if yes -%}\n   a\n{%- endif %}   {% if no %}{% endif %}   b\n\t{% set q = 1 %}\t\n{{ q }}  \n",
    "x\r\n  {% if yes %}\r\ny\r\n{% endif %}\r\n\r\nz\r",
    "\n\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n  {# c #}\n  {#- d -#}\n\n a",
    "  {% for i in items %}  \n  {{- i -}}  \n  {% endfor %}  \n",
    "{{ '\n' }}{{ \"\\t|\\x41|\\u00e9|\\\\|\\'|\\q|\\101\" }}{{ 'a\\\nb' }}",
    "{%- set a = [\n  1,\n  2,\n] -%}\n{{ a }}\n",
    "{%if yes%}a{%endif%}{{n}}{#c#}{%-if yes-%} b {%-endif-%}",
    "{{ n -}}   \n  x {{- n }}\n{{+ n }} { { n }} {{'{{'}} {% raw %}{{{% endraw %} }}",
    "\ufeffx\u00a0\n\u00a0{% if yes %}\n\u2003\n{%- endif %}",
    "no tags at all\n\n",
    "\n",
    "",
]

TEMPLATES = SNIPPETS + MULTILINE
