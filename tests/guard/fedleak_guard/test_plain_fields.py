"""The schema of policies says what the reader accepts."""

import dataclasses
from typing import Any

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


def test_the_schema_has_types_limits_and_defaults() -> None:
    schema = schema_of(Budget)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["delta"]["exclusiveMinimum"] == 0
    assert schema["properties"]["delta"]["default"] == 1e-5
    assert schema["properties"]["job_rounds"]["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert schema_of(Policy)["required"] == ["format", "evidence", "tensors"]


def test_the_page_has_every_key_with_its_sentence() -> None:
    page = (ROOT / "docs/guard.md").read_text(encoding="utf-8")
    assert [key for key in keys(schema_of(Policy)) if f"`{key}`" not in page] == []
    for one in dataclasses.fields(Budget):
        assert one.metadata["text"] in page
