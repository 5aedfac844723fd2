"""A prompt template of a spec: which inputs it uses, and what is wrong with its Jinja. Nothing is rendered here."""

from __future__ import annotations

import functools

from jinja2 import Environment, TemplateError, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment


class BadTemplateError(Exception):
    """Why a template cannot be used; `line` counts from 1 in its text."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@functools.lru_cache(maxsize=8)
def variables(text: str) -> frozenset[str]:
    """The names that a template takes from outside.

    Raises:
        BadTemplateError: it is no Jinja, or it includes other templates.
    """
    # Jinja computes constants while it compiles, however large; a finalizer that wants the context stops that.
    environment = ImmutableSandboxedEnvironment(autoescape=False, optimized=False, finalize=_as_is)
    try:
        tree = environment.parse(text)
        _check_names(tree, environment)
        names = meta.find_undeclared_variables(tree)
        others = list(meta.find_referenced_templates(tree))
    except TemplateSyntaxError as error:
        raise BadTemplateError(error.lineno, _one_line(error.message)) from None
    except TemplateError as error:
        raise BadTemplateError(1, _one_line(error.message)) from None
    except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError):
        raise BadTemplateError(1, "is too deep or too large to compile") from None
    if others:
        raise BadTemplateError(1, "includes or extends another template")
    return frozenset(names)


def _check_names(tree: nodes.Template, environment: Environment) -> None:
    """Jinja itself finds an unknown filter or test inside a branch only when it renders that branch."""
    for kind, known in ((nodes.Filter, environment.filters), (nodes.Test, environment.tests)):
        for node in tree.find_all(kind):
            name: str = getattr(node, "name", "")
            if name not in known:
                raise BadTemplateError(
                    node.lineno, f"uses the {kind.__name__.lower()} {name[:60]}, which Jinja does not have"
                )


@pass_context
def _as_is(_context: Context, value: object) -> object:
    return value


def _one_line(message: str | None) -> str:
    return " ".join(f"is no valid Jinja: {message or 'it cannot be read'}".split()).rstrip(".")
