"""A hook of MkDocs that links the first use of each glossary term on a page to its entry.

The terms are those of `docs/reference/glossary.md`. Words with a common everyday sense, such as
"run" and "key" (`EVERYDAY`), are not linked, and neither are headings, links and code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element  # nosec B405  # parses nothing

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

GLOSSARY = "docs/reference/glossary.md"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+) \|$", re.MULTILINE)
MARKUP = re.compile(r"`|\[|\]\([^)]*\)")
# The elements that get no links; tables and list items do.
LEFT_ALONE = {"a", "code", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "script", "style"}
EVERYDAY = {
    "action", "agent", "attempt", "check", "client", "connection", "engine", "environment",
    "episode", "evidence", "floor", "group", "image", "interface", "interval", "key", "level",
    "lock", "queue", "role", "run", "server", "session", "state", "target", "task", "tool",
    "trainer", "worker", "reward", "resume", "observation",
}  # fmt: skip


def terms_of(text: str) -> dict[str, str]:
    """Return the terms of the glossary that pages link to, with their meanings as plain text."""
    found = {term.lower(): MARKUP.sub("", meaning) for term, meaning in ROW.findall(text)}
    return {term: meaning for term, meaning in found.items() if term not in EVERYDAY}


def anchor_of(term: str) -> str:
    """Return the fragment of a term's entry."""
    return "term-" + re.sub(r"\W+", "-", term.lower())


class GlossaryLinks(Treeprocessor):  # type: ignore[misc]  # markdown has no types
    """A tree processor that links the first use of each term on a page.

    Attributes:
        page: The path in the repository of the page that is being written.
    """

    def __init__(self, terms: dict[str, str]) -> None:
        super().__init__()
        self.page = ""
        self._terms = terms
        words = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
        self._pattern = re.compile(rf"\b({words})(s?)\b", re.IGNORECASE)

    def run(self, root: Element) -> None:
        if self.page == GLOSSARY:
            self._mark_entries(root)
            return
        self._linked: set[str] = set()
        self._href = posixpath.relpath(GLOSSARY, posixpath.dirname(self.page))
        self._walk(root)

    def _mark_entries(self, root: Element) -> None:
        for row in root.iter("tr"):
            cell = row.find("td/strong")
            if cell is not None and cell.text:
                cell.set("id", anchor_of(cell.text))

    def _walk(self, element: Element) -> None:
        if element.tag in LEFT_ALONE:
            return
        if element.text:
            element.text, links = self._linked_text(element.text)
            for at, link in enumerate(links):
                element.insert(at, link)
        for child in list(element):
            if "term" not in (child.get("class") or ""):
                self._walk(child)
                if child.tail:
                    child.tail, links = self._linked_text(child.tail)
                    at = list(element).index(child) + 1
                    for place, link in enumerate(links, at):
                        element.insert(place, link)

    def _linked_text(self, text: str) -> tuple[str, list[Element]]:
        """Return the text before the first link, and the links, each with the text after it."""
        before, links, at = "", list[Element](), 0
        for match in self._pattern.finditer(text):
            term = match[1].lower()
            if term in self._linked:
                continue
            self._linked.add(term)
            skipped, at = text[at : match.start()], match.end()
            if links:
                links[-1].tail = skipped
            else:
                before = skipped
            link = Element("a", {"class": "term", "title": self._terms[term]})
            link.set("href", f"{self._href}#{anchor_of(term)}")
            link.text = match[0]
            links.append(link)
        if not links:
            return text, []
        links[-1].tail = text[at:]
        return before, links


class GlossaryExtension(Extension):  # type: ignore[misc]
    """The extension of Python-Markdown that registers the tree processor."""

    def __init__(self, links: GlossaryLinks) -> None:
        super().__init__()
        self.links = links

    def extendMarkdown(self, md: Markdown) -> None:
        # The priority is after inline markup (20) and before MkDocs makes links relative (0).
        md.treeprocessors.register(self.links, "glossary", 5)


_links: GlossaryLinks | None = None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension."""
    global _links
    root = Path(config.config_file_path).parent
    _links = GlossaryLinks(terms_of((root / GLOSSARY).read_text(encoding="utf-8")))
    extensions: list[Any] = config.markdown_extensions
    extensions.append(GlossaryExtension(_links))
    return config


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Record which page is written next."""
    assert _links is not None
    _links.page = page.file.src_uri
    return markdown
