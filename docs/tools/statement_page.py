"""Documentation of system.yaml and statement.json, made of the descriptions of their fields.

python -m docs.tools.statement_page     # in docs/audit: statement.schema.json, the tables of statement-reference.md
"""

import json
from collections.abc import Iterator
from pathlib import Path

from fedleak.core.io.files import write_whole
from fedleak.reports.statement.content import Statement
from fedleak.reports.statement.numbers import Strict
from fedleak.reports.statement.system_file import PARTS, System

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs" / "audit" / "statement.schema.json"
PAGE = ROOT / "docs" / "audit" / "statement-reference.md"
_START = "<!-- fields: python -m docs.tools.statement_page -->\n"


def schema() -> str:
    """JSON schema of statement.json."""
    return json.dumps(Statement.model_json_schema(mode="serialization"), indent=2) + "\n"


def page() -> str:
    """docs/audit/statement-reference.md with current tables."""
    return PAGE.read_text(encoding="utf-8").partition(_START)[0] + _START + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    """A table of fields for each object of the two files."""
    titles: dict[type[Strict], str] = {System: "system.yaml"}
    titles |= {kind: f"{name} in system.yaml" for name, kind in PARTS.items()}
    titles[Statement] = "statement.json"
    # Those with a title first, then the others by name.
    others = sorted(Strict.__subclasses__(), key=lambda kind: kind.__name__)
    for kind in dict.fromkeys((*titles, *others)):
        title = titles.get(kind, kind.__name__)
        yield f"\n### {title}\n\n{kind.__doc__}\n\n| Field | Meaning |\n|---|---|"
        for name, field in kind.model_fields.items():
            yield f"| `{name}` | {field.description} |"


if __name__ == "__main__":
    write_whole(SCHEMA, schema().encode())
    write_whole(PAGE, page().encode())
