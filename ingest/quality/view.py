"""The look of the Data Docs: Great Expectations' own contents in pages that load nothing, run no script and show values as text.

GX takes the classes that render a site from its configuration, by module and name. So only GX imports this module, which imports GX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from html import escape
from pathlib import Path
from typing import Any

from great_expectations.render.components import RenderedComponentContent
from great_expectations.render.renderer.content_block.validation_results_table_content_block import (
    ValidationResultsTableContentBlockRenderer,
)
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader, pass_context

TEMPLATES = Path(__file__).parent / "templates"
# GX shows the outcome of an expectation as an icon of a font. A word can be read, and searched for, without the font.
ICON = re.compile(r'(<i class="[^"]*\b(fa-check-circle|fa-times|fa-exclamation-triangle)\b[^"]*"[^>]*>)</i>')
WORDS = {"fa-check-circle": "✔ passed", "fa-times": "✘ failed", "fa-exclamation-triangle": "⚠ not evaluated"}


class PageView(DefaultJinjaPageView):
    """Pages of validation runs and suites, and the index: they share one template."""

    def __init__(self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        # GX searches its own templates first, so its configuration could not replace any of them.
        assert self.env.loader is not None
        self.env.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), self.env.loader])

    def render_string_template(self, template: Any) -> Any:
        """A text with its parameters; icons get a word. GX escapes parameters that are strings. All else is escaped here: the text, which
        may be the description of an expectation, lists and mappings, and tooltips."""
        if not isinstance(template, dict):
            return self._text(template)
        shown = deepcopy(template)  # GX changes it in place
        shown["template"] = escape(shown.get("template", ""), quote=False).replace("&lt;br&gt;", "<br>")
        shown["params"] = {name: value if isinstance(value, str) else str(value) for name, value in shown.get("params", {}).items()}
        if "tooltip" in shown:
            shown["tooltip"]["content"] = escape(shown["tooltip"]["content"])
        found = super().render_string_template(shown)  # type: ignore[no-untyped-call]
        return ICON.sub(lambda icon: f"{icon[1]}{WORDS[icon[2]]}</i>", found)

    def render_styling(self, styling: Any) -> str:
        """The attributes of a tag, escaped."""
        attributes = {name: escape(str(value)) for name, value in (styling.get("attributes") or {}).items()}
        return str(super().render_styling({**styling, "attributes": attributes}))

    @pass_context
    def render_content_block(
        self, context: Any, content_block: Any, index: Any = None, content_block_id: Any = None, render_to_markdown: bool = False
    ) -> Any:
        """A piece of a page as HTML. Text is escaped here: GX puts values of the data (an unexpected value, say) into cells unescaped."""
        if isinstance(content_block, list):
            return "".join(self._element(context, each, at, content_block_id) for at, each in enumerate(content_block))
        if _is_block(content_block):
            return super().render_content_block(context, content_block, index, content_block_id, render_to_markdown)
        return self._text(content_block)

    @staticmethod
    def _text(value: Any) -> str:
        return "" if value is None else escape(str(value))

    def _element(self, context: Any, element: Any, index: int, content_block_id: Any) -> str:
        if _is_block(element):
            part = f"{content_block_id}-{index}" if content_block_id else None
            return str(self.render_content_block(context, element, index, part))
        if isinstance(element, list):  # the ids of rows
            return "".join(f"<div>{escape(str(each))}</div>" for each in element)
        return f"<span>{escape(str(element))}</span>"


def _is_block(content: Any) -> bool:
    return isinstance(content, RenderedComponentContent) or (isinstance(content, dict) and "content_block_type" in content)


class ResultTable(ValidationResultsTableContentBlockRenderer):
    """The outcomes of a column's expectations, with severities and ids of some rows: GX itself shows ids only if it has all of them."""

    @classmethod
    def _process_content_block(cls, content_block: Any, has_failed_evr: bool, render_object: Any = None) -> None:
        super()._process_content_block(content_block, has_failed_evr, render_object)
        content_block.header_row += ["Severity", "Rows such as"]

    @classmethod
    def _get_content_block_fn(cls, expectation_type: str, expectation_config: Any = None) -> Callable[..., Any]:
        described = super()._get_content_block_fn(expectation_type, expectation_config)

        def rows(**given: Any) -> list[list[Any]]:
            result = given["result"]
            samples = result.result.get("partial_unexpected_index_list") or ()
            ids = [", ".join(f"{name} {value}" for name, value in sample.items()) for sample in samples]
            severity = getattr(result.expectation_config.severity, "value", None) or "critical"
            return [[*row, severity, [ids]] for row in described(**given)] if described else []

        return rows
