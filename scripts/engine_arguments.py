"""Write the list of a vLLM wheel's server arguments, read from its source without importing it.

    python scripts/engine_arguments.py vllm-0.33.0-….whl >cli/cogsmith/data/vllm-0.33.0.arguments.csv

One line per argument: its name (snake_case) and its kind: flag (--x / --no-x), list (--x a b), json (--x '{…}') or value (--x v).
The kind comes from the annotation of the dataclass field that the argument fills.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath

SOURCES = ("arg_utils.py", "cli_args.py")
# Spelled otherwise than their annotations say: an alias, a union of text and list, a list as JSON or with commas.
EXCEPTIONS = {
    "allowed_headers": "json",
    "allowed_methods": "json",
    "allowed_origins": "json",
    "device_ids": "value",
    "hf_overrides": "json",
    "ignore_patterns": "list",
}
CLASSES = ("EngineArgs", "AsyncEngineArgs", "BaseFrontendArgs", "FrontendArgs")


def kind(annotation: str) -> str:
    """How a field with this annotation is spelled on the command line."""
    plain = annotation.replace(" | None", "")
    if plain == "bool":
        return "flag"
    if plain.startswith(("list[", "set[")):
        return "list"
    if "dict[" in plain or plain == "dict" or plain.endswith("Config"):
        return "json"
    return "value"


def fields(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, annotation) of each field of the argument dataclasses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield item.target.id, ast.unparse(item.annotation).strip("'\"")


def flags(tree: ast.Module) -> Iterator[str]:
    """The long names given to add_argument, in snake_case."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                    yield str(argument.value)[2:].replace("-", "_")


def main(wheel: str) -> None:
    kinds: dict[str, str] = {}
    named: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            path = PurePosixPath(name)
            if path.name not in SOURCES or path.parts[0] != "vllm":
                continue
            tree = ast.parse(archive.read(name))
            found = dict(fields(tree))
            kinds.update({field: kind(annotation) for field, annotation in found.items()})
            named.update(flags(tree))
            if path.name == "cli_args.py":  # its parser adds every field in a loop
                named.update(found)
    print("argument,kind")
    for argument in sorted(named & kinds.keys()):
        print(f"{argument},{EXCEPTIONS.get(argument, kinds[argument])}")


if __name__ == "__main__":
    main(sys.argv[1])
