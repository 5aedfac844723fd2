"""`cogsmith serve --on local`: the model on a port of this machine, in the foreground, until Ctrl-C."""

from __future__ import annotations

import json

from cogsmith.local import require_port
from cogsmith.output import data, seconds_table, step
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.readme import example_input
from cogsmith.session import running


def serve(project: Project, plan: Plan, port: int) -> None:
    """Serve until it is interrupted, and print a curl line for each way to call it.

    Raises:
        UserError: the port is taken, the model could not be started, or the server ended.
        KeyboardInterrupt: when the user ends it.
    """
    require_port(port)
    with running(project, plan, port) as session:
        seconds_table("", session.phases)
        data(curl_lines(session.server.url, plan))
        step("Ready. Ctrl-C stops it.")
        session.server.wait()


def curl_lines(url: str, plan: Plan) -> str:
    """One ready-made command for each way to call the server."""
    example = example_input(plan)
    body = _quoted({"input": example})
    post = f"curl -s -H 'Content-Type: application/json' -d {body}"
    return "\n".join(
        (
            "# tokens as they come",
            f"curl -sN -H 'Accept: text/event-stream' -H 'Content-Type: application/json' -d {body} {url}/predictions",
            "# the whole answer, when it is there",
            f"{post} {url}/predictions",
            "# in the background, told to a webhook; then cancel it",
            f"curl -s -X PUT -H 'Prefer: respond-async' -H 'Content-Type: application/json' "
            f"-d {_quoted({'input': example, 'webhook': 'http://127.0.0.1:9000/'})} {url}/predictions/my-id",
            f"curl -s -X POST {url}/predictions/my-id/cancel",
            "# state of the server, and the schema of its inputs",
            f"curl -s {url}/health-check",
            f"curl -s {url}/openapi.json",
            "",
        )
    )


def _quoted(body: object) -> str:
    text = json.dumps(body, ensure_ascii=False).replace("'", "'\\''")
    return f"'{text}'"
