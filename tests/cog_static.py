"""Reads a predict.py as Cog's build does: statically, by its rules for literals (pkg/schema/python of replicate/cog).

A string literal is the text between its quotes as it stands, never unescaped; a default counts only where it is a literal; None on a type
that is not Optional makes the input required.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "regex": "pattern",
    "description": "description",
}


@dataclass(frozen=True)
class Runner:
    """What Cog learns from a predict.py.

    base, method: of the class. schema: of the input. decorators: of the method, name -> max or None. output: its annotation.
    imported: what comes from cog.
    """

    base: str
    method: str
    schema: dict[str, Any]
    decorators: dict[str, Any]
    output: str
    imported: set[str]


def read_runner(source: str) -> Runner:
    tree = ast.parse(source)
    [runner] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node for node in runner.body if isinstance(node, ast.AsyncFunctionDef)]
    [run] = [node for node in methods if node.name in {"run", "predict"}]
    names = [argument for argument in run.args.args if argument.arg != "self"]
    assert len(run.args.defaults) == len(names), "each input carries an Input(...)"
    properties: dict[str, Any] = {}
    required = []
    for order, (argument, default) in enumerate(zip(names, run.args.defaults, strict=True)):
        properties[argument.arg], needed = _property(argument, default, order, source)
        if needed:
            required.append(argument.arg)
    decorators = {}
    for node in run.decorator_list:
        if isinstance(node, ast.Call):
            [keyword] = node.keywords
            decorators[ast.unparse(node.func)] = _literal(keyword.value, source)
        else:
            decorators[ast.unparse(node)] = None
    return Runner(
        base=ast.unparse(runner.bases[0]) if runner.bases else "",
        method=run.name,
        schema={"properties": properties, "required": required},
        decorators=decorators,
        output=ast.unparse(run.returns) if run.returns else "",
        imported={
            alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "cog"
            for alias in node.names
        },
    )


def _property(argument: ast.arg, default: ast.expr, order: int, source: str) -> tuple[dict[str, Any], bool]:
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    optional = annotation.startswith("Optional[")
    kind = TYPES[annotation.removeprefix("Optional[").removesuffix("]")]
    assert isinstance(default, ast.Call)
    assert ast.unparse(default.func) == "Input"
    assert not default.args, "Cog reads keyword arguments only"
    given = {str(keyword.arg): _literal(keyword.value, source) for keyword in default.keywords}
    found: dict[str, Any] = {"x-order": order, "type": kind, "nullable": optional}
    found |= {LIMITS[key]: value for key, value in given.items() if key in LIMITS}
    if "choices" in given:
        found["choices"] = given["choices"]
    needed = "default" not in given or (given["default"] is None and not optional)
    if not needed:
        found["default"] = given["default"]
    return found, needed


def _literal(node: ast.expr, source: str) -> Any:
    if isinstance(node, ast.List):
        return [_literal(item, source) for item in node.elts]
    text = ast.get_source_segment(source, node)
    assert text is not None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if text.startswith(('"""', "'''")):
            return text[3:-3]
        return text[2:-1] if text.startswith("r") else text[1:-1]
    return ast.literal_eval(text)
