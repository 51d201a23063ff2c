"""The environment in which chat templates are rendered for reference: Jinja2 3.1.6, sandboxed,
with trim_blocks, lstrip_blocks and loop controls, and a tojson that is plain json.dumps."""
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} marks what a model wrote; it changes nothing in the text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    assert jinja2.__version__ == "3.1.6", jinja2.__version__
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def render(template, variables):
    """A row's outcome: {"output": text} or {"error": sentence}."""
    try:
        return {"output": environment().from_string(template).render(**variables)}
    except Exception as error:  # whatever it is, ours must refuse too
        return {"error": f"{type(error).__name__}: {error}"[:200]}
