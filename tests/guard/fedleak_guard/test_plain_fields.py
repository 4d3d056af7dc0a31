"""The schema of policies says what the reader accepts."""

from typing import Any

from fedleak_guard.known_checks import known_checks
from fedleak_guard.plain_fields import schema_of
from fedleak_guard.policy import Budget, Policy
from tests.places import ROOT


def keys(schema: dict[str, Any], prefix: str = "") -> list[str]:
    """All keys of a policy, those of sections as ``section.key``."""
    found = []
    for name, one in schema.get("properties", {}).items():
        found.append(prefix + name)
        for part in (one, one.get("items", {}), *one.get("anyOf", ())):
            found += keys(part, f"{prefix}{name}.")
    return found


def descriptions(schema: Any) -> list[str]:
    """All descriptions in a schema."""
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema["description"]] if isinstance(schema, dict) and isinstance(schema.get("description"), str) else []
    return own + [text for part in parts for text in descriptions(part)]


def test_the_schema_has_types_limits_and_defaults() -> None:
    schema = schema_of(Budget)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["delta"]["exclusiveMinimum"] == 0
    assert schema["properties"]["delta"]["default"] == 1e-5
    assert schema["properties"]["job_rounds"]["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert schema_of(Policy)["required"] == ["format", "evidence", "tensors"]


def test_the_page_has_every_key_with_its_sentence() -> None:
    page = (ROOT / "docs/site/guard.md").read_text(encoding="utf-8")
    assert [key for key in keys(schema_of(Policy)) if f"`{key}`" not in page] == []
    assert [text for text in descriptions(schema_of(Policy)) if text not in page] == []
    assert [name for name, kind in known_checks().items() if f"| `{name}` | {kind.text} |" not in page] == []
