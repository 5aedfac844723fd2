"""A spec is read strictly: every mistake of a file at once, each on one line with its place and a hint."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from cogsmith import inputs
from cogsmith.errors import MistakesError
from cogsmith.prompt_template import variables
from cogsmith.spec import Spec, load_spec

HERE = Path(__file__).parent
BAD = sorted((HERE / "specs").glob("*.yaml"))
GOOD = sorted((HERE / "specs" / "good").glob("*.yaml"))
MINIMAL = "model: checkpoints/tiny\nbackend: vllm\nhardware: cpu\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes models/x.yaml in an empty project and reads it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()

    def load(text: str | bytes, name: str = "x") -> Spec:
        path = Path("models") / f"{name}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_spec(path)

    return load


def mistakes(write, text: str | bytes, name: str = "x") -> list[str]:
    with pytest.raises(MistakesError) as caught:
        write(text, name)
    return caught.value.lines()


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_spec(path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(path.parent)
    start = time.perf_counter()
    with pytest.raises(MistakesError) as caught:
        load_spec(Path(path.name))
    assert time.perf_counter() - start < 1
    lines = caught.value.lines()
    expected = path.with_suffix(".txt")
    if request.config.getoption("--update-golden", False):
        expected.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == expected.read_text("utf-8").splitlines()
    for line in lines:
        assert re.fullmatch(rf"{re.escape(path.name)}:\d+: .+\. Hint: .+", line)


def test_there_are_enough_bad_specs() -> None:
    assert len(BAD) >= 100
    several = [path for path in BAD if len(path.with_suffix(".txt").read_text("utf-8").splitlines()) > 1]
    assert len(several) >= 10
    assert {path.stem for path in BAD} == {path.stem for path in (HERE / "specs").glob("*.txt")}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_spec(path: Path) -> None:
    spec = load_spec(path)
    assert spec.name == path.stem
    assert spec.signature


def test_three_lines_are_a_spec(write) -> None:
    spec = write(MINIMAL)
    assert spec.name == "x"
    assert (spec.context, spec.concurrency, spec.cog) == (None, None, "0.23.1")
    assert spec.weights.bucket == "file://.bucket"
    constraints = inputs.CONSTRAINTS
    every = [entry.name for entry in inputs.BUILTINS if entry.name not in constraints]
    assert [entry.name for entry in spec.signature] == every


def test_own_inputs_keep_their_order_and_take_defaults_from_sampling(write) -> None:
    spec = write(
        MINIMAL + "prompt: {template: '{{ text }}'}\nsampling: {top_k: 5}\n"
        "inputs:\n  top_k: {max: 10}\n  text: {type: string, description: What to say.}\n  seed:\n"
    )
    top_k, text, seed = spec.signature
    assert (top_k.name, top_k.default, top_k.ge, top_k.le) == ("top_k", 5, 0, 10)
    assert (text.name, text.required) == ("text", True)
    assert (seed.name, seed.required, seed.default) == ("seed", False, None)


def test_template_without_inputs_leaves_out_what_it_does_not_use(write) -> None:
    names = [entry.name for entry in write(MINIMAL + "prompt: {template: '{{ prompt }}'}\n").signature]
    assert "prompt" in names
    assert "system_prompt" not in names
    assert "messages" not in names
    assert "temperature" in names


def test_system_prompt_of_the_spec_may_be_a_variable(write) -> None:
    spec = write(
        MINIMAL
        + "prompt: {template: '{{ system_prompt }}{{ prompt }}', system: Be brief.}\ninputs: {prompt: }\n"
    )
    assert [entry.name for entry in spec.signature] == ["prompt"]


def test_empty_sections_count_as_absent(write) -> None:
    spec = write(MINIMAL + "prompt:\ninputs:\nsampling:\ntests:\nstop:\ncontext:\n")
    assert spec.inputs is None
    assert spec.stop == ()


def test_scientific_notation_is_a_number_and_seed_zero_a_seed(write) -> None:
    spec = write(MINIMAL + "sampling: {temperature: 1e-5, seed: 0, top_p: 1}\n")
    assert spec.sampling.model_dump(exclude_none=True) == {"temperature": 1e-5, "seed": 0, "top_p": 1}


def test_keys_that_other_readers_take_for_booleans_stay_text(write) -> None:
    spec = write(
        MINIMAL + "prompt: {template: '{{ on }}'}\ninputs:\n  on: {type: string, description: A switch.}\n"
    )
    assert [entry.name for entry in spec.signature] == ["on"]


def test_byte_order_mark_and_windows_line_ends(write) -> None:
    assert write(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()).model == "checkpoints/tiny"


def test_places_are_known_to_later_stages(write) -> None:
    spec = write(MINIMAL + "engine:\n  max_num_seqs: 4\n")
    assert spec.at("engine.max_num_seqs") == ("models/x.yaml", 5)
    assert spec.at("engine.absent") == ("models/x.yaml", 4)
    assert spec.at("context") == ("models/x.yaml", 1)
    line = str(spec.mistake("engine.max_num_seqs", "is 4, must be 5", "write 5"))
    assert line == "models/x.yaml:5: engine.max_num_seqs: is 4, must be 5. Hint: write 5"


@pytest.mark.parametrize("name", ["Big", "two words", "a..b", "-x", "x" * 65, "ü"])
def test_file_name_is_the_models_name(write, name: str) -> None:
    (line,) = mistakes(write, MINIMAL, name)
    assert "the file's name is the model's name" in line


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MistakesError, match="No such file"):
        load_spec(tmp_path / "absent.yaml")


def test_file_too_large_or_too_many_values(write) -> None:
    (line,) = mistakes(write, "#" * (1 << 20) + "\n" + MINIMAL)
    assert "larger than 1024 KiB" in line
    start = time.perf_counter()
    (line,) = mistakes(write, MINIMAL + "engine: [" + "1," * 400_000 + "1]\n")
    assert "more than 10,000 values" in line
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    "text",
    [
        "hf_abcdefghijklmnopqrstuvwxyz012345",
        "r8_abcdefghijklmnopqrstuvwxyz012345",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
@pytest.mark.parametrize(
    "where",
    [
        "backend: {}",
        "hardware: {}",
        "environment: {{A: {}}}",
        "prompt: {{system: {}}}",
        "weights: {{url: 'https://u:{}@h/'}}",
    ],
)
def test_secrets_are_found_and_never_shown(write, where: str, text: str) -> None:
    lines = mistakes(write, "model: m\n" + where.format(text) + "\n")
    assert "access token" in "\n".join(lines)
    assert text not in "\n".join(lines)


def test_constants_of_a_template_are_not_computed() -> None:
    start = time.perf_counter()
    assert variables("{{ 9**9**9**9 }}{{ prompt }}{% if 7**7**7**7 %}{% endif %}") == {"prompt"}
    assert time.perf_counter() - start < 1


def test_every_builtin_is_described_in_one_line_that_predict_py_can_hold() -> None:
    for entry in inputs.BUILTINS:
        assert entry.description.endswith(".")
        assert not re.search(r"[\n\t\\]", entry.description)
        assert not {"'", '"'} <= set(entry.description)
