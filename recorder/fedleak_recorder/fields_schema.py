"""JSON schema of the dataclasses that `fedleak_recorder.plain_fields` reads."""

import dataclasses
import types
import typing
from typing import Any, Literal

from fedleak_recorder.plain_fields import has_default, limits_of

_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON schema of a dataclass, of a type of a field, or of a field's optional type."""
    if isinstance(kind, types.UnionType):
        options = [schema_of(option) for option in kind.__args__ if option is not type(None)]
        return {"anyOf": [*options, {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        return _schema_of_dataclass(kind)
    origin = typing.get_origin(kind)
    parts = typing.get_args(kind)
    if origin is tuple:
        return {"type": "array", "items": schema_of(parts[0])}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is not None:  # a mapping
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return {"type": _JSON[kind]}


def _schema_of_dataclass(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {}
    required = []
    for field in dataclasses.fields(kind):
        properties[field.name] = _field_schema(hints[field.name], field)
        if not has_default(field):
            required.append(field.name)
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _field_schema(hint: Any, field: "dataclasses.Field[Any]") -> dict[str, Any]:
    limits = limits_of(field)
    schema = {"description": limits.text, **schema_of(hint)}
    bounds = {
        "minimum": limits.low,
        "exclusiveMinimum": limits.above,
        "maximum": limits.high,
        "exclusiveMaximum": limits.below,
    }
    # Of an optional number, the bounds stand in the option that is a number.
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") in ("number", "integer"):
            part.update({name: bound for name, bound in bounds.items() if bound is not None})
    if isinstance(field.default, bool | int | float | str):
        schema["default"] = field.default
    return schema
