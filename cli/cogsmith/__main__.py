"""The command line: one function per verb, nothing heavy imported before a verb runs. Errors become exit codes here alone."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from cogsmith import __version__
from cogsmith.errors import UserError

EXIT_CODES = """\
Exit codes: 0 done; 1 something to change, said in one line; 2 a wrong command line; 3 the prediction failed; 130 interrupted.
"""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cogsmith")
def cli() -> None:
    """Put an open LLM into production with Cog: one small YAML per model in models/, one command per stage.

    Run it in the folder that holds models/.
    """


name_argument = click.argument("name")
on_option = click.option(
    "--on", type=click.Choice(["local"]), required=True, help="Where: on this machine, without Docker."
)
backend_option = click.option(
    "--backend", metavar="BACKEND", help="One of the spec's backends, where it names several."
)
hardware_option = click.option(
    "--hardware", metavar="HW", help="Other hardware than the spec's: a second folder, build/NAME@HW."
)

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Say warnings and errors alone.")
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: for programs, one object on stdout.",
)


@cli.command()
@click.argument("name", default="my-model")
def init(name: str) -> None:
    """Begin here: models/NAME.yaml, a Makefile, a .gitignore. NAME is my-model unless given."""
    from pathlib import Path

    from cogsmith.verbs.init import init as run

    run(Path.cwd(), name)


@cli.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@format_option
def check(names: tuple[str, ...], form: str) -> None:
    """Say every mistake of the specs; write nothing."""
    from cogsmith.paths import Project
    from cogsmith.verbs.check import check as run
    from cogsmith.verbs.check import check_json

    project = Project.here()
    if form == "text":
        run(project, names)
    elif not check_json(project, names):
        sys.exit(1)


@cli.command()
@name_argument
@quiet_option
@format_option
def lock(name: str, quiet: bool, form: str) -> None:
    """Read the checkpoint and write models/NAME.lock."""
    from cogsmith import output
    from cogsmith.paths import Project
    from cogsmith.verbs.lock import lock as run
    from cogsmith.verbs.lock import lock_json

    if quiet or form == "json":
        output.be_quiet()
    project = Project.here()
    locked = run(project, name)
    if form == "json":
        output.data(lock_json(project, name, locked))


@cli.command()
@name_argument
@hardware_option
@backend_option
@click.option("--diff", is_flag=True, help="Show what would change, as a unified diff; write nothing.")
def render(name: str, hardware: str | None, backend: str | None, diff: bool) -> None:
    """Write build/NAME/, the folder that `cog build` takes; with several backends, one for each."""
    from cogsmith.paths import Project
    from cogsmith.verbs.render import every_plan, show_diff
    from cogsmith.verbs.render import render as run

    project = Project.here()
    for plan in every_plan(project, name, hardware, backend):
        (show_diff if diff else run)(project, plan)


@cli.command()
@name_argument
@quiet_option
@format_option
def pack(name: str, quiet: bool, form: str) -> None:
    """Pack the weights into the spec's bucket and lock them."""
    from cogsmith import output
    from cogsmith.paths import Project
    from cogsmith.verbs.lock import lock_json
    from cogsmith.verbs.pack import pack as run

    if quiet or form == "json":
        output.be_quiet()
    project = Project.here()
    locked = run(project, name)
    if form == "json":
        output.data(lock_json(project, name, locked))


@cli.command()
@name_argument
@on_option
@click.option(
    "-i", "pairs", multiple=True, metavar="NAME=VALUE", help="An input. May be given more than once."
)
@click.option("--json", "json_input", metavar="JSON|@FILE|@-", help="All inputs, as one JSON object.")
@hardware_option
@backend_option
def predict(
    name: str,
    on: str,
    pairs: tuple[str, ...],
    json_input: str | None,
    hardware: str | None,
    backend: str | None,
) -> None:
    """Answer once: start the model, stream the answer to stdout, stop it."""
    from cogsmith import prediction_input
    from cogsmith.paths import Project
    from cogsmith.verbs.predict import predict as run
    from cogsmith.verbs.render import planned

    if pairs and json_input is not None:
        raise click.UsageError("give -i or --json, not both")
    project = Project.here()
    plan = planned(project, name, hardware, backend)
    if json_input is not None:
        inputs = prediction_input.from_json(json_input, plan.inputs)
    else:
        inputs = prediction_input.from_pairs(pairs, plan.inputs)
    run(project, plan, inputs)


@cli.command()
@name_argument
@on_option
@click.option(
    "-p", "--port", type=click.IntRange(1, 65535), default=8393, show_default=True, help="Port on 127.0.0.1."
)
@hardware_option
@backend_option
def serve(name: str, on: str, port: int, hardware: str | None, backend: str | None) -> None:
    """Serve the model until Ctrl-C."""
    from cogsmith.paths import Project
    from cogsmith.verbs.render import planned
    from cogsmith.verbs.serve import serve as run

    project = Project.here()
    run(project, planned(project, name, hardware, backend), port)


@cli.group()
def weights() -> None:
    """Look after what was packed: ls, verify, export, rm, prune."""


format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: for programs, on stdout.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def _asks(yes: bool) -> Callable[[str], bool]:
    return lambda text: yes or click.confirm(text, err=True)


@weights.command("ls")
@click.argument("name", required=False)
@format_option
def weights_ls(name: str | None, form: str) -> None:
    """Show what lies in NAME's bucket, or in those of all models, and which lock names it."""
    from cogsmith.paths import Project
    from cogsmith.verbs.weights import ls

    ls(Project.here(), name, as_json=form == "json")


@weights.command("verify")
@name_argument
@format_option
def weights_verify(name: str, form: str) -> None:
    """Read NAME's packed weights through and hold every byte to the lock."""
    from cogsmith.paths import Project
    from cogsmith.verbs.weights import verify

    if not verify(Project.here(), name, as_json=form == "json"):
        sys.exit(1)


@weights.command("export")
@name_argument
@click.option(
    "--to",
    metavar="DIR",
    help="The folder, which must be empty or not there; build/NAME@managed unless given.",
)
@hardware_option
@backend_option
@format_option
def weights_export(name: str, to: str | None, hardware: str | None, backend: str | None, form: str) -> None:
    """Experimental: write a folder for Cog's managed weights, rendered and with NAME's files in it.

    `cog weights import` and `cog push` of Cog 0.20 or newer take it from there. The files are read out of the packed tar and held
    to the lock; weights.lock is Cog's to write.
    """
    from pathlib import Path

    from cogsmith import output
    from cogsmith.paths import Project
    from cogsmith.verbs.export import export
    from cogsmith.verbs.render import planned

    if form == "json":
        output.be_quiet()
    project = Project.here()
    plan = planned(project, name, hardware, backend)
    export(project, plan, None if to is None else Path(to), as_json=form == "json")


@weights.command("rm")
@name_argument
@click.argument("digest")
@yes_option
def weights_rm(name: str, digest: str, yes: bool) -> None:
    """Remove what was packed as DIGEST (its first digits) from NAME's bucket, unless a lock names it."""
    from cogsmith.paths import Project
    from cogsmith.verbs.weights import rm

    rm(Project.here(), name, digest, _asks(yes))


@weights.command("prune")
@name_argument
@yes_option
def weights_prune(name: str, yes: bool) -> None:
    """Remove all that no lock names from NAME's bucket, and uploads that were never finished."""
    from cogsmith.paths import Project
    from cogsmith.verbs.weights import prune

    prune(Project.here(), name, _asks(yes))


@cli.command()
@click.option(
    "--boot",
    "log",
    metavar="LOGFILE",
    required=True,
    help="Where the last boot in this log, or a boot.json, spent its time.",
)
@click.option("-o", "--output", metavar="FILE", help="A picture, .png or .svg, instead of text.")
def status(log: str, output: str | None) -> None:
    """Show what a boot was made of, as a waterfall."""
    from pathlib import Path

    from cogsmith.verbs.status import boot as run

    run(Path(log), None if output is None else Path(output))


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    # A plain `kill` ends as Ctrl-C does: with what was started stopped.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        from cogsmith.output import problem

        for line in error.lines():
            problem(line)
        sys.exit(error.exit_code)
    except OSError as error:
        # The disk or a permission, where no stage expected it.
        if error.filename is None:
            raise
        from cogsmith.output import problem

        problem(f"Error: {error.filename}: {error.strerror}")
        problem("Hint: check the disk and the permissions")
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("Interrupted\n")
        sys.exit(130)
    finally:
        # What is left goes with the process. To take apart what botocore made would cost 0.1 to 0.2 s.
        gc.freeze()
    sys.exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
