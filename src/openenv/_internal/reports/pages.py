"""Self-contained HTML pages without requests and scripts; and Markdown.

A page's template is in the ``templates`` directory of the package that it belongs to. It can use
the shared templates of this package: ``base.html``, which every page extends, ``style.css``, and
``figure.html``, a plot.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

from openenv._internal.packages import needs


def rendered(
    package: str,
    template: str,
    values: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Render a template of HTML or Markdown.

    Args:
        package: The package that has the template.
        template: The template's name, such as ``report.html``.
        values: The template's variables.
        filters: The template's filters.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    with needs("a report", "pip install 'openenv[eval]'"):
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    is_html = not template.endswith(".md")
    environment = Environment(  # nosec B701  # Markdown is escaped by `finalize`
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("openenv._internal.reports")]),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # In Markdown, all text except the template's may come from others, and is escaped.
        finalize=None if is_html else lambda one: plain(one) if isinstance(one, str) else one,
    )
    environment.filters.update(filters or {})
    environment.globals.update(values)  # globals are visible in macros too
    return environment.get_template(template).render()


def plain(text: str) -> str:
    """Escape Markdown and HTML in a text, and fold white space."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")
