"""Pydantic's errors in the words of a contract, and the parts of a refused document that can still be checked."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ingest.contract.checks import Parts
from ingest.contract.parts import Column, ControlTotal, EventIdText, Layout, Rule
from ingest.contract.problem import Loc, Problem, one_of, shown
from ingest.contract.table_property import PropertiesText

# In {name: x, comment: one, two} YAML ends the comment at the comma and reads "two" as a key. DECIMAL(18,2) has the same problem.
COMMA = "; between { and }, text with a comma needs quotes"


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Each error as a problem. The allowed value is the description of the field, which the JSON Schema shows too."""
    problems = []
    for details in error.errors(include_url=False):
        loc, kind, context = details["loc"], details["type"], details.get("ctx", {})
        holder, info = _field_at(model, loc)
        described = (info.description if info else None) or "a value as docs/reference/contracts.md describes it"
        if kind == "contract":
            problem = Problem(loc, context["found"], context["expected"])
        elif kind == "missing":
            problem = Problem(loc, f"the key {shown(str(loc[-1]))} is missing", described)
        elif kind == "extra_forbidden":
            expected = one_of(holder.model_fields, loc[-1]) + (COMMA if details["input"] is None else "")
            problem = Problem(loc, f"unknown key {shown(str(loc[-1]))}", expected)
        else:
            problem = Problem(loc, f"{shown(details['input'])} is not allowed", described)
        problems.append(problem)
    return problems


def _field_at(model: type[BaseModel], loc: Loc) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost model that contains `loc`, and the nearest field on the way."""
    info: FieldInfo | None = None
    inner: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            continue
        if inner is None:
            break
        model, info, inner = inner, inner.model_fields.get(part), None
        for candidate in (info.annotation, *get_args(info.annotation)) if info else ():
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                inner = candidate
    return model, info


def parts_of(data: dict[str, Any]) -> Parts:
    """The parts of a document that are valid by themselves. The others are left out, and `problems_of` reports them."""
    source, columns, rules = data.get("source"), data.get("columns", []), data.get("rules")
    format_given = source.get("format") if isinstance(source, dict) else None
    event_time, unknown_fields = data.get("event_time"), data.get("unknown_fields")
    named = (
        [(i, c["name"], _attempt(Column, c)) for i, c in enumerate(columns) if isinstance(c, dict) and isinstance(c.get("name"), str)]
        if isinstance(columns, list)
        else None
    )
    return Parts(
        format=format_given if format_given in ("json", "raw") else None,
        columns=tuple(named) if named is not None and (named or not columns) else None,
        event_id=_attempt(EventIdText, data["event_id"]) if "event_id" in data else None,
        event_time=event_time if isinstance(event_time, str) else None,
        rules=_each(Rule, rules),
        unknown_fields=unknown_fields if isinstance(unknown_fields, str) else None,
        layout=_attempt(Layout, data.get("layout", {})),
        properties=_attempt(PropertiesText, data.get("properties", {})) or {},
        control_totals=_each(ControlTotal, data.get("control_totals")),
    )


def _each(kind: Any, given: Any) -> tuple[tuple[int, Any], ...]:
    """The valid elements of a list, with their indexes."""
    return tuple((i, made) for i, each in enumerate(given) if (made := _attempt(kind, each))) if isinstance(given, list) else ()


def _attempt(kind: Any, value: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return None
