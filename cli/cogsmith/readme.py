"""The README of a rendered folder: what it is, how it is built and called without cogsmith."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cogsmith.cog_versions import cog_version
from cogsmith.inputs import Input
from cogsmith.plan import Plan


def readme(plan: Plan, build: Sequence[str] | None = None) -> str:
    """Markdown, the same for the same plan.

    Args:
        build: lines about how it is built and run, if not in the usual way.
    """
    lines = _build(plan) if build is None else build
    return "\n".join((*_head(plan), *lines, *_call(plan), *_inputs(plan)))


def _head(plan: Plan) -> list[str]:
    settings = plan.settings
    lines = [
        f"# {plan.name}",
        "",
        f"Rendered by cogsmith from `models/{plan.name}.yaml`. Edit the spec, not this folder.",
        "",
        "| | |",
        "|---|---|",
        f"| engine | {plan.engine.name} {plan.engine.version} |",
        f"| answer | {_answer(plan)} |",
        f"| hardware | {plan.hardware.name} |",
        f"| context | {settings.context} tokens, prompt and answer together |",
        f"| concurrency | {plan.concurrency} predictions at once |",
        f"| Cog | {plan.cog}, Python {plan.engine.python}{f', CUDA {plan.engine.cuda}' if plan.engine.cuda else ''} |",
    ]
    if plan.engine.driver:
        lines.append(f"| NVIDIA driver | {plan.engine.driver} or newer |")
    if plan.engine.untried:
        lines += ["", f"Of this engine build: {plan.engine.untried}."]
    if plan.other_hardware:
        lines += [
            "",
            f"This folder is for trying the model on {plan.hardware.name}. It is not the image that the spec describes.",
        ]
    return [*lines, ""]


def _answer(plan: Plan) -> str:
    output = plan.settings.output
    kind = {
        "text": "text",
        "json": "JSON by the schema in `settings.json`" if output.schema else "a JSON object",
        "regex": f"text that matches `{output.regex}`".replace("|", "\\|"),
        "choice": "one of " + ", ".join(f"`{choice}`" for choice in output.choices).replace("|", "\\|"),
    }[output.kind]
    return kind + (", sent as it comes" if output.stream else ", sent as a whole")


def _build(plan: Plan) -> list[str]:
    settings = plan.settings
    # Several GPUs talk through shared memory, of which a container has 64 MB unless told otherwise.
    gpus = " --gpus all --shm-size 1g" if plan.hardware.gpu else ""
    object_ = f"{plan.index.digest}.tar" if plan.index else "DIGEST.tar"
    weights = "" if settings.weights_url else f" -e COG_WEIGHTS=https://weights.example.com/{object_}"
    lines = [
        "## Build and run",
        "",
        "```sh",
        f"cog build -t {plan.name} --openapi-schema .cog/openapi_schema.json",
        f"docker run --rm --name {plan.name} -p 5000:5000{gpus}{weights} {plan.name}",
        "# from another terminal",
        f"docker stop -t 120 {plan.name}",
        "```",
        "",
        "Stopping waits for the predictions that run, so give it more than Docker's 10 seconds.",
        "",
    ]
    if plan.index is None:
        lines += [
            f"The weights are not packed yet: run `cogsmith pack {plan.name}` first, then `cogsmith render {plan.name}`.",
            "",
        ]
    elif not settings.weights_url:
        lines += [
            "The image holds no weights and no address of them. `COG_WEIGHTS` names them at start: an `http(s)://` URL, or a path inside the",
            "container of the packed tar or of a folder, as with `-v $PWD/weights.tar:/weights.tar:ro -e COG_WEIGHTS=/weights.tar`. What arrives is",
            "checked against `weights.json` in the image. In a container, `127.0.0.1` is the container itself.",
            "",
        ]
    return lines


def _call(plan: Plan) -> list[str]:
    body = json.dumps({"input": example_input(plan)}, ensure_ascii=False)
    quoted = body.replace("'", "'\\''")
    call = f"-H 'Content-Type: application/json' -d '{quoted}' http://localhost:5000/predictions"
    stream = plan.settings.output.stream
    live, note = [], []
    if stream and cog_version(plan.cog).streaming:
        live = ["# tokens as they come", f"curl -N -H 'Accept: text/event-stream' {call}"]
    elif stream:
        note = [
            f'Cog {plan.cog} has no server-sent events: a webhook (`webhook` and `webhook_events_filter: ["output"]` beside `input`) or polling',
            "carries the tokens as they come.",
            "",
        ]
    return [
        "## Call",
        "",
        "```sh",
        *live,
        f"# the whole answer at once{', as a list of pieces' if stream else ''}",
        f"curl {call}",
        "```",
        "",
        *note,
        "A request more than the concurrency is answered with 409; try again later.",
        "",
    ]


def example_input(plan: Plan) -> dict[str, object]:
    """The least that a prediction needs, with something to look at."""
    required = {entry.name: _sample(entry) for entry in plan.inputs if entry.required}
    names = {entry.name for entry in plan.inputs}
    if not required and "prompt" in names:
        return {"prompt": "What is the capital of France?"}
    if not required and "messages" in names:
        return {"messages": '[{"role": "user", "content": "What is the capital of France?"}]'}
    return required


def _sample(entry: Input) -> object:
    if entry.choices:
        return entry.choices[0]
    if entry.name == "prompt":
        return "What is the capital of France?"
    return {"string": "text", "integer": entry.ge or 1, "number": entry.ge or 1.0, "boolean": True}[
        entry.type
    ]


def _inputs(plan: Plan) -> list[str]:
    lines = ["## Inputs", "", "| name | type | default | limits | |", "|---|---|---|---|---|"]
    for entry in plan.inputs:
        default = (
            "required"
            if entry.required
            else "none"
            if entry.default is None
            else f"`{json.dumps(entry.default, ensure_ascii=False)}`"
        )
        cells = (f"`{entry.name}`", entry.type, default, _limits(entry), entry.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _limits(entry: Input) -> str:
    if entry.choices:
        return ", ".join(f"`{json.dumps(choice, ensure_ascii=False)}`" for choice in entry.choices)
    parts = []
    if entry.ge is not None or entry.le is not None:
        parts.append(
            f"{'' if entry.ge is None else entry.ge} to {'' if entry.le is None else entry.le}".strip()
        )
    if entry.min_length is not None or entry.max_length is not None:
        parts.append(
            f"{entry.min_length or 0} to {'any' if entry.max_length is None else entry.max_length} characters"
        )
    if entry.regex is not None:
        parts.append(f"`{entry.regex}`")
    return "; ".join(parts)
