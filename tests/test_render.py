"""The rendered folder: golden files, Cog's rules, and a writer that touches only what changed."""

from __future__ import annotations

import ast
import builtins
import compileall
import json
import keyword
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cog_static import read_runner
from cogsmith.errors import UserError
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.render import render
from cogsmith.templates import literal
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from cogsmith.verbs.render import every_plan, planned
from cogsmith.verbs.render import render as write_render
from projects import SPEC, make_project

GOLDEN = Path(__file__).parent / "golden"
STRUCTURED = """\
model: weights/tiny
backend: vllm
hardware: h100:2
context: 2048
concurrency: 16
prompt:
  template: |
    Columns: {{ columns }}
    Question: {{ question }}
    {% if strict %}Answer in SQL only.{% endif %}
inputs:
  question: {type: string, description: "What to ask, in plain words.", min_length: 1, max_length: 500}
  columns: {type: string, description: Names of the columns., default: "id, name", regex: '^[\\w, ]+$'}
  strict: {type: boolean, description: Answer with nothing but the query., default: true}
  max_tokens: {default: 64, max: 256}
  temperature:
sampling: {temperature: 0, seed: 0}
stop: ["\\n\\n", ";"]
engine: {gpu_memory_utilization: 0.9, enable_prefix_caching: false, limit_mm_per_prompt: {image: 0}}
environment: {VLLM_LOGGING_LEVEL: DEBUG}
image: {system_packages: [git], run: [echo hello], python_packages: [Ruamel.yaml==0.18.6]}
weights: {url: "https://weights.example.com/models"}
"""
GPU = 'model: weights/tiny\nbackend: vllm\nhardware: l40s\nprompt: {system: "Be brief.\\nBe kind."}\n'
JSON = """\
model: weights/tiny
backend: vllm
hardware: l40s
stream: false
output: {type: json, schema: {type: object, properties: {city: {type: string}}, required: [city]}}
reasoning: {parser: qwen3}
stop_token_ids: [7]
"""
SPECS = {
    "cpu": SPEC,
    "gpu": GPU,
    "structured": STRUCTURED,
    "json": JSON,
    "tensorrt-llm": GPU.replace("backend: vllm", "backend: tensorrt-llm"),
    **{
        f"cog-{version}": f'{SPEC}cog: "{version}"\n'
        for version in ("0.17.2", "0.18.0", "0.20.0", "0.21.0", "0.22.0")
    },
    "cog-0.17.2-json": f'{JSON}cog: "0.17.2"\n',
}
# What a version of Cog has, as facts of Cog: base class, method and entry key, marks, `concurrency` in cog.yaml.
# How 0.17 is different in its setup is tried on its server.
COGS = {
    "0.17.2": ("BasePredictor", "predict", set(), True),
    "0.18.0": ("BasePredictor", "predict", set(), True),
    "0.20.0": ("BaseRunner", "run", set(), True),
    "0.21.0": ("BaseRunner", "run", {"streaming"}, True),
    "0.22.0": ("BaseRunner", "run", {"streaming", "concurrent"}, False),
    "0.23.1": ("BaseRunner", "run", {"streaming", "concurrent"}, False),
}


MODELS = Path(__file__).parent.parent / "models"
# The examples, each with the locks that are committed with them: one folder for each backend.
EXAMPLES = [
    path.stem if isinstance(backend, str) else f"{path.stem}@{one}"
    for path in sorted(MODELS.glob("*.yaml"))
    for backend in [yaml.safe_load(path.read_text())["backend"]]
    for one in ([backend] if isinstance(backend, str) else backend)
]


@pytest.fixture(params=[*sorted(SPECS), *EXAMPLES])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Project, Plan]:
    if request.param in SPECS:
        project = make_project(tmp_path, monkeypatch, SPECS[request.param])
        pack(project, "tiny")
        return request.param, project, planned(project, "tiny", None)
    shutil.copytree(MODELS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    project = Project.here()
    name, _, backend = request.param.partition("@")
    return request.param, project, planned(project, name, None, backend or None)


def test_every_file_is_as_reviewed(
    case: tuple[str, Project, Plan], golden: Callable[[Path, str], None]
) -> None:
    name, _, plan = case
    files = render(plan)
    assert sorted(files) == list(files)
    for path, text in files.items():
        if not path.startswith("cogsmith_runtime/"):
            golden(GOLDEN / name / path, text)


def test_the_schema_is_what_cog_reads_from_predict_py(case: tuple[str, Project, Plan]) -> None:
    _, _, plan = case
    files = render(plan)
    schema = json.loads(files[".cog/openapi_schema.json"])["components"]["schemas"]
    runner = read_runner(files["predict.py"])
    read = runner.schema
    stream = plan.settings.output.stream
    base, method, marks, _ = COGS[plan.cog]
    assert (runner.base, runner.method) == (base, method)
    marks = marks if stream else marks - {"streaming"}
    every = {"streaming": None, "concurrent": plan.concurrency}
    assert runner.decorators == {mark: every[mark] for mark in marks}
    assert runner.imported == {base, "Input", *marks, *({"ConcatenateIterator"} if stream else ())}
    assert runner.output == ("ConcatenateIterator[str]" if stream else "str")
    assert schema["Output"]["type"] == ("array" if stream else "string")
    assert read["required"] == schema["Input"].get("required", [])
    assert list(read["properties"]) == list(schema["Input"]["properties"])
    for name, prop in schema["Input"]["properties"].items():
        flat = {key: value for key, value in prop.items() if key not in {"title", "allOf"}} | {
            "nullable": prop.get("nullable", False)
        }
        if "allOf" in prop:
            flat |= {"choices": schema[name]["enum"], "type": schema[name]["type"]}
        assert flat == read["properties"][name], name


def test_every_input_says_what_the_playground_shows(case: tuple[str, Project, Plan]) -> None:
    """A description, an order, a default or required on purpose; limits of numbers; no name that hides something in predict.py."""
    source = render(case[2])["predict.py"]
    document = json.loads(render(case[2])[".cog/openapi_schema.json"])
    inputs = document["components"]["schemas"]["Input"]
    module = {
        name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.alias) for name in [node.name]
    }
    for order, (name, prop) in enumerate(inputs["properties"].items()):
        assert prop["description"].strip(), name
        assert prop["x-order"] == order
        if name in inputs.get("required", []):
            assert "default" not in prop
            assert not prop.get("nullable", False)
        else:
            assert "default" in prop or prop["nullable"], name
        if prop.get("type") in {"integer", "number"}:
            assert prop["minimum"] <= prop["maximum"], name
        hidden = {"self", "weights", *module, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
        assert name not in hidden


def test_the_schema_is_an_openapi_document_that_streams(case: tuple[str, Project, Plan]) -> None:
    plan = case[2]
    document = json.loads(render(plan)[".cog/openapi_schema.json"])
    stream = plan.settings.output.stream
    events = stream and "streaming" in COGS[plan.cog][2]
    assert document["paths"]["/predictions"]["post"].get("x-cog-streaming", False) is events
    assert ("x-cog-array-display" in document["components"]["schemas"]["Output"]) is stream
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)):
        assert reference in document["components"]["schemas"]


# What Cog's own schema for cog.yaml allows of the keys that are rendered. Cog drops unknown keys in silence.
COG_YAML: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["build"],
    "oneOf": [{"required": ["run"]}, {"required": ["predict"]}],
    "properties": {
        "build": {
            "type": "object",
            "additionalProperties": False,
            "required": ["python_version", "gpu", "python_requirements", "sdk_version"],
            "properties": {
                "gpu": {"type": "boolean"},
                "cuda": {"type": "string", "pattern": r"^\d+\.\d+$"},
                "python_version": {"type": "string", "pattern": r"^3\.\d+$"},
                "python_requirements": {"const": "requirements.txt"},
                "sdk_version": {"type": "string"},
                "system_packages": {"type": "array", "items": {"type": "string"}},
                "run": {"type": "array", "items": {"type": "string"}},
            },
        },
        "run": {"const": "predict.py:Predictor"},
        "predict": {"const": "predict.py:Predictor"},
        "concurrency": {
            "type": "object",
            "additionalProperties": False,
            "required": ["max"],
            "properties": {"max": {"type": "integer"}},
        },
        "environment": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*=.*$"},
        },
    },
}


def test_cog_yaml_holds_only_keys_that_cog_knows(case: tuple[str, Project, Plan]) -> None:
    name, _, plan = case
    config = yaml.safe_load(render(plan)["cog.yaml"])
    jsonschema.validate(config, COG_YAML)
    on_gpu = plan.hardware.gpu is not None
    assert config["build"]["gpu"] is on_gpu
    # Without it Cog takes CUDA 11.8 for an engine that it does not know.
    assert ("cuda" in config["build"]) is on_gpu
    assert config["build"]["sdk_version"] == plan.cog
    assert name.removeprefix("cog-").startswith(plan.cog) or plan.cog == "0.23.1"
    _, method, _, own_key = COGS[plan.cog]
    assert method in config
    assert config.get("concurrency") == ({"max": plan.concurrency} if own_key else None)


def test_requirements_are_what_cog_can_read(case: tuple[str, Project, Plan]) -> None:
    """Cog drops a marker and keeps its line, and cuts a name at its dots."""
    lines = render(case[2])["requirements.txt"].splitlines()
    names = [re.fullmatch(r"([a-z0-9-]+)(\[[a-z0-9,-]+\])?==[^ ;]+", line) for line in lines]
    assert all(names), [line for line, name in zip(lines, names, strict=True) if not name]
    assert len(lines) == len({name.group(1) for name in names if name})


def test_templates_stay_small() -> None:
    templates = Path(__file__).parent.parent / "templates"
    assert len((templates / "predict.py.j2").read_text().splitlines()) < 60
    assert len((templates / "cog.yaml.j2").read_text().splitlines()) < 40


def test_what_is_rendered_compiles_and_a_second_render_changes_nothing(
    case: tuple[str, Project, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    _, project, plan = case
    write_render(project, plan)
    folder = project.build_dir(plan.folder)
    assert compileall.compile_dir(folder, quiet=1)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    write_render(project, plan)
    assert f"build/{plan.folder} is up to date" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_only_changed_files_are_written_and_stale_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path, monkeypatch)
    pack(project, "tiny")
    write_render(project, planned(project, "tiny", None))
    folder = project.root / "build" / "tiny"
    (folder / "mine.txt").write_text("not rendered")
    kept = (folder / "requirements.txt").stat().st_mtime_ns
    # The checkpoint changes, so what was packed no longer counts: weights.json goes.
    (project.root / "weights/tiny/vocab.json").write_text("{}")
    lock(project, "tiny")
    capsys.readouterr()
    write_render(project, planned(project, "tiny", None))
    assert "removed weights.json" in capsys.readouterr().err
    assert not (folder / "weights.json").exists()
    assert (folder / "mine.txt").exists()
    assert (folder / "requirements.txt").stat().st_mtime_ns == kept


def test_another_hardware_goes_into_a_second_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path, monkeypatch, GPU)
    pack(project, "tiny")
    write_render(project, planned(project, "tiny", "cpu"))
    assert "not the image that the spec describes" in capsys.readouterr().err
    assert yaml.safe_load((project.root / "build/tiny@cpu/cog.yaml").read_text())["build"]["gpu"] is False
    assert (
        "It is not the image that the spec describes."
        in (project.root / "build/tiny@cpu/README.md").read_text()
    )
    assert not (project.root / "build/tiny").exists()


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        'a "quoted" word',
        "it's",
        "both ' and \"",
        "two\nlines",
        r"^[\w]+$",
        "",
        "\n",
        "üñí 😀",
        "ends with \\n",
        "{{ x }}",
    ],
)
def test_a_literal_reads_in_cog_as_in_python(text: str) -> None:
    source = f"class P:\n    async def run(self, x: str = Input(default={literal(text)})): ...\n"
    assert read_runner(source).schema["properties"]["x"]["default"] == text


@pytest.mark.parametrize("text", ["ends with \\", "a\\b\nc", "''' \"\"\"", "tab\\\t\nx"])
def test_a_text_that_cog_would_misread_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="Cog cannot read the text"):
        literal(text)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.lock")), ids=lambda path: path.stem)
def test_every_example_has_a_lock_whose_figures_name_their_source(path: Path) -> None:
    lock = yaml.safe_load(path.read_text())
    named = {figure for names in lock["sources"] for figure in names.split(", ")}
    assert named <= {"checkpoint", *lock["checkpoint"]}
    assert all(lock["sources"].values())
    assert {path.stem for path in MODELS.glob("*.yaml")} == {path.stem for path in MODELS.glob("*.lock")}


def test_two_backends_render_two_folders_that_differ_in_the_engine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path, monkeypatch, GPU.replace("vllm", "[vllm, tensorrt-llm]"))
    lock(project, "tiny")
    plans = every_plan(project, "tiny", None, None)
    assert [plan.folder for plan in plans] == ["tiny@vllm", "tiny@tensorrt-llm"]
    one, two = (render(plan) for plan in plans)
    changed = {path for path in one.keys() | two.keys() if one.get(path) != two.get(path)}
    assert changed == {"cog.yaml", "requirements.txt", "settings.json", "README.md", "engine.yaml"}
    assert "not the image" not in one["README.md"] + two["README.md"]
    config = yaml.safe_load(two["engine.yaml"])
    assert config["guided_decoding_backend"] == "xgrammar"
    assert config["max_seq_len"] == plans[1].settings.context
