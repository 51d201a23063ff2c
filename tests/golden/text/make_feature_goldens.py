#!/usr/bin/env python3
"""Writes template_features.jsonl: small templates, one feature each, and what Jinja2 prints.

    python3 make_feature_goldens.py
"""
import json
import sys
from pathlib import Path

from jinja_reference import render

HERE = Path(__file__).resolve().parent
V = {
    "s": "Hello World", "u": "h\u00e9llo \u4e16\u754c", "empty": "", "pad": "  \t x \n", "n": 7, "neg": -3, "f": 2.5,
    "t": True, "no": False, "nil": None, "xs": [3, 1, 2], "words": ["b", "A", "c", "B"], "e": [],
    "d": {"b": 1, "a": [1, 2], "items": "key", "C": None}, "path": "a/b/c",
    "people": [{"name": "Ann", "age": 30, "pet": {"kind": "cat"}}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30, "pet": {"kind": "dog"}}],
    "nested": {"x": [1, 2.0, "s'q", None, True, {"k": "v\"\n\u00e9"}]}, "lines": "one\ntwo\n\nthree\n", "html": "<a href=\"x\">&'</a>",
}

ROWS = r"""
plain text
{{ s }}
{{ n }} {{ neg }} {{ f }} {{ t }} {{ no }} {{ nil }}
[{{ missing }}]
{{ xs }} {{ e }} {{ d }}
{{ nested }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ [1, 'a', none, true] }}
{{ {'a': 1, 'b': [2]} }} {{ {} }}
{{ {1: 2, none: 3, true: 4, 1.5: 5} }}
{{ {'a': 1, 'b': 2, 'a': 3} }}
{{ 'it\'s' }} {{ "it's" }} {{ ['it\'s', 'a"b', 'a\'"b', 'tab\t', '\x00\x7f\xa0\u200b\U0001f600'] }}
{{ 'a\nb\tc\\d\"e\'f\x41\u00e9\101\q' }}
{{ 'adjacent ' 'strings' }}
{{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789012345.6 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}
{{ 100000000000000000000 }} {{ 9223372036854775807 + 1 }} {{ 2 ** 100 }}
{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.0 / 2 }} {{ 1 / 3 }} {{ 6 / 2 }} {{ -0.0 }}
{{ +5 }} {{ --5 }} {{ -n }} {{ -f }} {{ - n + 1 }}
{{ true + true }} {{ true * 3 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ missing }}
{{ 1 ~ 2 + 3 }}
{{ (1 ~ 2) + '3' }} {{ 2 * 3 ~ 4 }}
{{ 1 + 2 ~ 3 }}
{{ 1 < 2 }} {{ 2 <= 2 }} {{ 3 > 4 }} {{ 4 >= 4 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ 'a' == 'a' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 3 > 2 > 1 == 1 }}
{{ [1, 2] == [1, 2] }} {{ [1, 2] == (1, 2) }} {{ {'a': 1} == {'a': 1.0} }} {{ [1, 2] < [1, 3] }} {{ (1, 'a') < (1, 'b') }} {{ none == none }} {{ missing == missing2 }} {{ none == missing }}
{{ 'ell' in s }} {{ 'x' in s }} {{ 1 in xs }} {{ 9 in xs }} {{ 'a' in d }} {{ 'z' not in d }} {{ 1 not in [1] }} {{ '' in s }} {{ 1 in (1, 2) }} {{ 'x' in missing }}
{{ true and false }} {{ 1 and 'x' }} {{ 0 or 'y' }} {{ none or [] }} {{ not 0 }} {{ not not 'a' }} {{ 1 and 0 or 2 }} {{ not 1 == 2 }} {{ not true or true }}
{{ 'yes' if n > 5 else 'no' }} {{ 'yes' if n > 50 else 'no' }} [{{ 'x' if false }}] {{ 1 if 0 else 2 if 0 else 3 }} {{ (1 if t else 2) + 1 }}
{{ 'a' if t else 'b' ~ 'c' }} {{ ('a' if no else 'b') ~ 'c' }}
{{ 'a' ~ ('b' if t else 'c') ~ 'd' }}
{{ xs[0] }} {{ xs[-1] }} [{{ xs[10] }}] {{ d['a'] }} {{ d.a }} {{ d['a'][1] }} {{ d.a.1 }} [{{ d.zzz }}] {{ people[0].pet.kind }} {{ people[0]['pet']['kind'] }}
{{ d.items is callable }}|{{ d['items'] }}
{{ s[0] }} {{ s[-1] }} {{ u[1] }} {{ u[-1] }} [{{ s[100] }}] {{ s['x'] is undefined }}
{{ s[1:3] }} {{ s[:5] }} {{ s[6:] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-5:-1] }} {{ s[5:1] }} {{ s[8:1:-2] }} {{ u[::-1] }} {{ u[1:7] }} {{ s[:] }} {{ s[-100:100] }}
{{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ xs[-2:] }} {{ xs[::2] }} {{ xs[5:] }} {{ (1, 2, 3)[1:] }} {{ xs[2:0:-1] }} {{ xs[none:2] }} {{ range(5)[1:3] | list }}
{{ nil.foo }}|{{ n.foo }}|{{ xs.foo }}
{{ missing.foo }}
{{ missing['foo'] }}
{{ missing[0] }}
{{ missing() }}
{{ d.zzz.y }}
{{ missing + 1 }}
{{ -missing }}
{{ missing < 1 }}
{{ nil[0] }}|{{ nil['a'] }}
{{ nil[1:] }}
{{ nil() }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 'a' < 1 }}
{{ [] + () }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 // 0 }}
{{ 1 in 5 }}
{{ 1 in 'a' }}
{{ 5 in none }}
{{ s() }}
{{ xs.append(4) }}
{{ d.update({'q': 1}) }}
{{ d.pop('a') }}
{% for x in xs %}{{ x }},{% endfor %}
{% for x in e %}{{ x }}{% else %}none{% endfor %}
{% for x in missing %}{{ x }}{% else %}none{% endfor %}
{% for x in nil %}{{ x }}{% endfor %}
{% for x in n %}{{ x }}{% endfor %}
{% for c in u %}{{ c }}.{% endfor %}
{% for k in d %}{{ k }} {% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}
{% for (a, b) in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }} {% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for x in xs if x > 1 %}{{ x }}@{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}
{% for x in xs if x > 10 %}{{ x }}{% else %}none{% endfor %}
{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in xs %}[{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}]{% endfor %}
{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}
{% for x in xs %}{{ loop.cycle('odd', 'even') }} {% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}
{% for x in xs %}{% for y in [1, 2] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}
{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }} {% endfor %}
{% for x in xs[::-1] %}{{ x }}{% endfor %} {% for x in xs | reverse %}{{ x }}{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %} {{ range(2, 5) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3) }} {{ range(1, 10, 3) }} {{ range(3) | length }}
{% for x in (1, 2) %}{{ x }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in xs %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% for i in xs %}{{ z }}{% set z = i %}{% endfor %}[{{ z }}]
{% for x in xs %}{% set x = x * 2 %}{{ x }} {% endfor %}
{% for x in xs %}{{ x }}{% endfor %}[{{ x }}][{{ loop }}]
{% set ns = namespace(a=1, b='x') %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}[{{ ns.zzz }}]
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{% set ns.c = 3 %}{{ ns.c }}
{% set ns = namespace() %}{% set ns.a = 1 %}{% set other = ns %}{% set other.a = 5 %}{{ ns.a }} {{ ns is defined }} {{ ns is mapping }} {{ ns is iterable }}
{% set q = 5 %}{% set q.a = 1 %}
{% set d.z = 1 %}
{% set undefined_thing.z = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set a %}block {{ n }}{% endset %}[{{ a }}]
{% set a | upper | replace('L', '*') %}hello{% endset %}[{{ a }}]
{% set a %}{% set inner = 1 %}{% endset %}[{{ inner }}]
{% set ns = namespace(v='') %}{% set ns.v %}x{{ n }}{% endset %}{{ ns.v }}
{% if n %}a{% endif %}{% if no %}b{% elif n == 7 %}c{% elif t %}d{% else %}e{% endif %}{% if e %}f{% else %}g{% endif %}
{% if missing %}a{% else %}b{% endif %}{% if nil %}a{% else %}b{% endif %}{% if '' %}a{% else %}b{% endif %}{% if 0.0 %}a{% else %}b{% endif %}{% if {} %}a{% else %}b{% endif %}{% if [0] %}a{% endif %}
{% if t %}{% set w = 1 %}{% endif %}{{ w }}
{% macro m(a, b=2, c='z') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(a=9) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }}
{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}
{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]{{ m() ~ 'y' }}{{ m() is string }}
{% macro m() %}{% set inside = 1 %}{{ inside }}{% endmacro %}{{ m() }}[{{ inside }}]
{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}
{% macro m(x) %}{{ n }}{{ x }}{% endmacro %}{% for n in xs %}{{ m(n) }} {% endfor %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}[{{ a }}]
{% with %}{% set a = 1 %}{{ a }}{% endwith %}[{{ a }}]
{% filter upper %}abc {{ s }}{% endfilter %}
{% filter replace('a', 'b') | upper %}aaa{% endfilter %}
{% generation %}text {{ n }}{% endgeneration %}
{% raw %}{{ not }} {% code %} {# no #}{% endraw %} after
  {%- raw -%}  x  {%- endraw -%}  y
{# comment #}a{# multi\nline #}b
{% print n, s %}
a {%- if t %} b {%- endif %} c
a {% if t -%} b {% endif -%} c
a {{- ' b ' -}} c
{{ "a }} b" }} {{ '%}' }} {{ {'a': {'b': 1}} }}
{{ pad | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '\u3000a\u2003' | trim }}|{{ 5 | trim }}|{{ missing | trim }}|{{ nil | trim }}
{{ s | length }} {{ u | length }} {{ xs | length }} {{ d | length }} {{ missing | length }} {{ e | count }} {{ (1, 2) | length }}
{{ n | length }}
{{ nil | length }}
{{ s | upper }} {{ u | upper }} {{ s | lower }} {{ 'hELLO wORLD' | capitalize }} {{ 'hello big-world (x) [y] a_b' | title }} {{ '\u00e9a' | capitalize }} {{ 'stra\u00dfe' | upper }}
{{ 5 | upper }} {{ none | lower }} {{ true | upper }}
{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 2) }} {{ 'aaa' | replace('a', 'aa') }} {{ 'abc' | replace('', '-') }} {{ 5 | replace('5', 'x') }} {{ s | replace('zzz', '') }}
{{ missing | default('x') }} {{ nil | default('x') }} {{ nil | default('x', true) }} {{ '' | d('y', true) }} {{ 0 | default(1, boolean=true) }} [{{ missing | default }}] {{ d.zzz | default({}) }}
{{ nested | tojson }}
{{ 'a"\\\n\r\t\b\f\x01\x7f\u00e9\u2028\U0001f600</script>&\'' | tojson }}
{{ [1, 1.0, 1e22, true, none, 'x', (1, 2), {}, []] | tojson }}
{{ {'b': 1, 'a': {'c': []}} | tojson(indent=2) }}
{{ [1, [2, {}]] | tojson(indent=4) }}
{{ [] | tojson(indent=2) }} {{ {'a': []} | tojson(indent=1) }} {{ [1] | tojson(indent=0) }}
{{ 'h\u00e9\U0001f600\x7f' | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}
{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }}
{{ missing | tojson }}
{{ d.items() | tojson }}
{{ range(3) | tojson }}
{{ n | string ~ 'x' }} {{ xs | string }} {{ nil | string }} {{ 's' | string | length }} [{{ missing | string }}]
{{ html | safe }} {{ 5 | safe }} {{ html | escape }} {{ html | e }}
{{ xs | join }} {{ xs | join(', ') }} {{ words | join('-') }} {{ people | join(', ', attribute='name') }} {{ [1, none, true, [2]] | join('|') }} {{ 'abc' | join(',') }} [{{ e | join(',') }}] {{ xs | join(1) }} {{ d | join(' ') }} [{{ missing | join('x') }}]
{{ xs | first }} {{ xs | last }} [{{ e | first }}] [{{ e | last }}] {{ s | first }} {{ s | last }} {{ d | first }}
{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }} {{ missing | list }} {{ xs | list }}
{{ d | items | list }} {{ missing | items | list }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | length }}
{{ 5 | items | list }}
{{ d.keys() }} {{ d.values() }} {{ d.items() }}
{{ xs | sort }} {{ xs | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}
{{ [1, 'a'] | sort }}
{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}
{{ ['a', 'A', 'b', 1, 1.0] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }}
{{ xs | reverse | list }} {{ s | reverse }} {{ u | reverse }} {{ (1, 2) | reverse | list }}
{{ xs | sum }} {{ people | sum(attribute='age') }} {{ xs | sum(start=10) }} {{ e | sum }} {{ [1, 2.5] | sum }}
{{ xs | min }} {{ xs | max }} {{ words | min }} {{ words | max }} [{{ e | min }}] {{ people | max(attribute='age') }} {{ ['b', 'A'] | min(case_sensitive=true) }}
{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ true | int }} {{ none | int }} {{ ' 7 ' | int }} {{ 'ff' | int(base=16) }} {{ '0x1f' | int(0, 16) }} {{ '1_000' | int }} {{ '-5' | int }} {{ '1e3' | int }} {{ [] | int }}
{{ '1.5' | float }} {{ 3 | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ '1e3' | float }} {{ none | float }} {{ ' 2 ' | float }} {{ '+1.5' | float }} {{ '.5' | float }}
{{ -5 | abs }} {{ (-5) | abs }} {{ -2.5 | abs }} {{ neg | abs }} {{ 5 | abs }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ 42.55 | round(1, 'floor') }} {{ 7 | round }} {{ 2.675 | round(2) }} {{ -2.5 | round }} {{ 1234.5 | round(-2) }} {{ 0.5 | round }} {{ 42.7 | round | int }}
{{ lines | indent }}
{{ lines | indent(2, first=true) }}
{{ lines | indent(2, true, true) }}
{{ lines | indent('> ') }}
{{ xs | map('string') | list }} {{ words | map('upper') | join }} {{ people | map(attribute='name') | list }} {{ people | map(attribute='pet.kind', default='none') | list }} {{ ['a-b', 'c-d'] | map('replace', '-', '+') | list }} {{ [1.5, 2.5] | map('int') | list }}
{{ [{'a': [5, 6]}] | map(attribute='a.1') | list }} {{ [[1, 2], [3, 4]] | map(attribute=1) | list }} {{ ['a'] | map('default', 'x') | list }}
{{ xs | map('nosuch') | list }}
{{ xs | select('odd') | list }} {{ xs | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, ''] | reject | list }} {{ xs | select('>', 1) | list }} {{ xs | select('divisibleby', 3) | list }} {{ xs | select('in', [1, 2]) | list }} {{ [1, 'a', none] | select('string') | list }}
{{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | rejectattr('age', 'eq', 30) | map(attribute='name') | list }} {{ people | selectattr('pet') | map(attribute='name') | list }} {{ people | selectattr('pet', 'defined') | list | length }}
{{ people | rejectattr('pet.kind', '==', 'cat') | map(attribute='name') | list }}
{{ [people[0], people[2]] | selectattr('pet.kind', 'eq', 'cat') | map(attribute='name') | list }} {{ people | rejectattr('pet') | map(attribute='name') | list }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }}
{{ 'a b  c' | wordcount }} [{{ 'ab' | center(7) }}] [{{ 'abc' | center(6) }}]
{{ s | attr('upper') is callable }}
{{ xs | nosuch }}
{{ xs is nosuch }}
{% nosuch %}
{{ s | length > 5 }} {{ s | length + 1 }} {{ not s | length }}
{{ xs | first + 1 }}
{{ -xs | first }}
{{ xs | map('string') | first ~ 'q' }}
{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.zzz is defined }} {{ n is not defined }} {{ nil is none }} {{ nil is not none }} {{ missing is none }} {{ nil is defined }}
{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ n is float }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ no is false }} {{ 1 is true }} {{ 0 is false }}
{{ d is mapping }} {{ xs is mapping }} {{ xs is iterable }} {{ s is iterable }} {{ n is iterable }} {{ d is iterable }} {{ missing is iterable }} {{ nil is iterable }} {{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ (1,) is sequence }} {{ d.items() is sequence }} {{ missing is sequence }} {{ range(3) is sequence }} {{ d.keys() is iterable }}
{{ range is callable }} {{ s is callable }} {{ s.upper is callable }} {{ missing is callable }} {{ 5 is callable }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 9 is not divisibleby 2 }} {{ 3 is eq 3 }} {{ 3 is ne 4 }} {{ 3 is lt 4 }} {{ 3 is gt 4 }} {{ 3 is le 3 }} {{ 3 is ge 4 }} {{ 3 is equalto(3) }} {{ 2 is in [1, 2] }} {{ 5 is not in xs }} {{ 'a' is in 'abc' }} {{ 3 is greaterthan 2 }} {{ 3 is lessthan 2 }}
{{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'aB' is upper }} {{ 'A1' is upper }} {{ '1' is upper }} {{ '' is lower }} {{ none is sameas none }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ true is sameas true }}
{{ 'x' is string and n is number }} {{ 'x' is string or no }} {{ (n is string) == false }} {{ n is number and not s is number }}
{{ 'a' is odd }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ "they're bill's".title() }} {{ 'aBC dEF'.capitalize() }} {{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.find('o') }} {{ s.find('z') }} {{ u.find('\u4e16') }} {{ s.count('l') }} {{ s.index('W') }}
{{ path.split('/') }} {{ path.split('/')[-1] }} {{ path.split('/', 1) }} {{ ' a  b '.split() }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,,c'.split(',') }} {{ path.rsplit('/', 1) }} {{ ' a b c '.split(none, 1) }} {{ 'aXXbXXc'.split('XX') }}
{{ s.split('') }}
{{ pad.strip() }}|{{ pad.lstrip() }}|{{ pad.rstrip() }}|{{ 'xyaxy'.strip('xy') }}|{{ 'xyaxy'.lstrip('xy') }}|{{ 'xyaxy'.rstrip('xy') }}|{{ '\n\na\n'.lstrip('\n') }}|{{ 'a'.strip(none) }}|{{ '\u00e9a\u00e9'.strip('\u00e9') }}
{{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }}
{{ ','.join([1]) }}
{{ lines.splitlines() }} {{ 'a\r\nb\rc'.splitlines() }} {{ 'unfoo'.removeprefix('un') }} {{ 'unfoo'.removesuffix('foo') }} {{ '12'.isdigit() }} {{ 'a1'.isdigit() }} {{ ''.isdigit() }}
{{ s.nosuch() }}
{{ s.nosuch }}|
{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() | list }} {{ d.values() | list | length }} {% for k in d.keys() %}{{ k }}{% endfor %}
{{ xs.index(1) }} {{ xs.count(3) }} {{ (1, 2, 1).count(1) }}
{{ xs.index(99) }}
{{ '%s is %d and %5.2f %% %r' % ('a', 5, 1.5, 'q') }} {{ '%s' % 'x' }} {{ '%05d|%-5s|%5s|%+d' % (42, 'a', 'b', 3) }} {{ '%x' % 255 }} {{ '%s' % [1] }} {{ '%s' % (none,) }}
{{ '%s %s' % ('a',) }}
{{ '%d' % 'a' }}
{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('k', 'v')]) }} {{ dict() }}
{{ raise_exception('no ' ~ s) }}
{% if false %}{{ raise_exception('x') }}{% endif %}fine
{{ range(10 ** 9) }}
{{ [[1, 2], [3]] | sum(start=[]) }}
{{ (xs | map('string') | list)[0] ~ '!' }} {{ (s | upper).lower() }} {{ (s ~ '!')[-1] }} {{ ([1, 2] + [3])[2] }} {{ 'abc'[1] }} {{ [1, 2][0] }} {{ {'a': 5}['a'] }} {{ {'a': 5}.a }} {{ 'a,b'.split(',')[1].upper() }}
{{ [x for x in xs] }}
{{ 'unclosed }}
{% if t %}
{% endfor %}
{{ 1 + }}
{{ (1 }}
{{ a b }}
{% for x xs %}{% endfor %}
{% break %}
{{ 1 if }}
{{ [1, 2 }}
{% set true = 1 %}
{% macro m(a=1, b) %}{% endmacro %}
{{ 5 is defined is string }}
{{ x.y.z if x is defined else 'none' }} {{ x.y if x else 'z' }}
{{ {'a': {'b': {'c': 1}}}.a.b.c }} {{ [[[1]]][0][0][0] }}
{{ none }}{{ None }}{{ True }}{{ False }}
{{ 'a' 'b' ~ 'c' }} {{ ('a', 'b')[0] }} {{ (('a')) }} {{ ((1, 2), 3) }}
{{ loop }}|
{{ n.__class__ }}|{{ ''.__class__ is undefined }}
{{ s | default(missing.x) }}
{{ 'x' | string | upper | lower | title | trim | length }}
{{ 1 == 1 and 2 == 2 }}{{ 1 in [1] and 2 not in [1] }}{{ not 1 in [2] }}{{ 'a' in ['a'] == true }}
{{ nested.x[5].k }} {{ nested['x'][-1]['k'] | tojson }} {{ nested.x | length }} {{ nested.x[2:4] }}
{{ people | length if people else 0 }} {{ people[-1].name if people | length > 2 else '' }} {{ (people | first).name }} {{ (people | last)['age'] }}
{{ missing | upper }}|{{ missing | replace('a', 'b') }}|{{ missing | first }}|{{ missing | sum }}|{{ missing | sort }}|{{ missing | wordcount }}
{{ missing | int }}
{{ missing | reverse | list }}
{{ missing | indent }}
{{ 5 | indent }}
{{ missing | float }}
{{ missing | abs }}
{{ missing | round }}
{{ missing | last }}
{{ missing | dictsort }}
{{ missing | min }}|{{ missing | unique | list }}|{{ missing | map('upper') | list }}|{{ missing | select | list }}|{{ missing | batch(2) | list }}
{{ [missing] }} {{ [nil, t] | tojson }} {{ [1, [2, (3,)], {'a': (4,)}] }}
"""

# Rows that need line breaks: white space control.
BLOCKS = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "  {{ n }}\n  {{ n }}\n", "x  {% if t %}\n  y{% endif %}  \nz",
    "a\n  {#  comment #}\nb\n", "a\n\t{%- if t -%}\n\tb\n\t{%- endif -%}\n\tc", "a\n  {%+ if t %}b{% endif +%}\nc\n", "{% for x in xs %}\n  - {{ x }}\n{% endfor %}\nend\n",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}\nend", "\n\n{{ n }}\n\n", "a\r\nb\rc{% if t %}\r\nd{% endif %}", "{% set a = 1 %}\n{% set b = 2 %}\n{{ a }}{{ b }}\n\n",
    "a  \n {{- n -}} \n  b", "{% if t %}a{% endif %}\n\n{% if t %}b{% endif %}\n", "a {# c1 #} b {#- c2 -#} c\n{# c3 #}\nd", "{%- macro m(x) -%}\n  [{{ x }}]\n{%- endmacro -%}\n{{ m(1) }}\n",
    "{% raw %}\n  {{ x }}\n{% endraw %}\nz", "  {% raw %} a {% endraw %}  \nz", "{% set a %}\n  line\n{% endset %}\n[{{ a }}]", "a\u00a0\n\u2003{%- if t %}b{% endif -%}\u3000c",
    "{%if t%}a{%endif%}{{n}}{{-n-}}", "{% if t %}\n\n\na{% endif %}", "x\n   \n  {% if t %}y{% endif %}", "{{ 'a\nb' }}", "{{ 'a\\\nb' }}", "{%\n if\n t\n %}a{%\nendif\n%}\n", "{{ {\n'a': 1,\n} }}{{ [1,\n2,\n] }}",
    "{% if t %}{# note #}\n  deep\n{% endif %}", "text {% for x in xs %}{{ x }}{{ ',' if not loop.last }}{% endfor %} end\n", "{% if true: %}a{% endif %}",
]


def main():
    templates = ROWS.strip("\n").split("\n") + BLOCKS
    with open(HERE / "template_features.jsonl", "w", encoding="utf-8") as out:
        errors = 0
        for template in templates:
            # Rows are raw Python text: \uXXXX in them is an escape of the template language.
            row = {"template": template, **render(template, V)}
            errors += "error" in row
            out.write(json.dumps(row) + "\n")
    (HERE / "template_variables.json").write_text(json.dumps(V, indent=1) + "\n")
    print(len(templates), "rows,", errors, "refused", file=sys.stderr)


if __name__ == "__main__":
    main()
