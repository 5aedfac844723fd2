"""Write what is generated from the spec's fields: models/spec.schema.json and the table in README.md."""

from __future__ import annotations

import re
from pathlib import Path

from cogsmith.spec_schema import FILE, schema_text, table

ROOT = Path(__file__).parent.parent
BETWEEN = re.compile(r"(<!-- fields: .*?-->\n).*?(<!-- /fields -->)", re.DOTALL)


def main() -> None:
    (ROOT / "models" / FILE).write_text(schema_text(), encoding="utf-8")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(BETWEEN.sub(lambda found: found[1] + table() + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
