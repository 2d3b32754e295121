"""Check the style of prose: ``make check`` runs it over pages, READMEs and docstrings.

    python scripts/style.py [FILE ...]      by default all pages, and the sources in src and envs

A program can check some of the rules for the prose of this project:

- Headings are what a reader would search for: no clause ("What a lost connection means") and no
  bare infinitive ("To rely on").
- A page has at most 18 words in a sentence on average, and no sentence has more than 45.
- American spelling.
- No subject is a clause with "whoever", "whatever" or "what of", and some worn phrases are banned.
- Of the first lines of docstrings at most 3 % begin as a clause ("Where a file of its server is."),
  and at most 20 % hold a bare pronoun ("It, as a frame.").

Each finding is a line ``FILE:LINE: what was found; what to write``, and the exit code is 1 if there
is any. Code, links, tables and quotations do not count as prose.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS_ON_AVERAGE = 18
MOST_WORDS = 45
FEWEST_SENTENCES = 8  # an average of fewer sentences means little
MOST_CLAUSES_PERCENT = 3.0
MOST_PRONOUNS_PERCENT = 20.0

CLAUSE = re.compile(
    r"^(what|how|where|when|who|whose|which|whether|why|that|as|in|from|by|of|for|to|if)\b", re.I
)
PRONOUN = re.compile(
    r"\b(it|they|them|their|its|one|ones|somebody|someone|nobody|who|whose|that of)\b", re.I
)
# A search finds "How samples are scored" and "When a session ends", but not "What it means".
RIDDLE = re.compile(r"^(what|where|who|whose|which|whether|that|as|of|to|if)\b(?!.*\?$)", re.I)
HEADINGS_OF_THE_FIELD = re.compile(r"^(What's new|Where to go next)")
WORN = {
    r"\bwhoever\b": "name the person or program",
    r"\bwhatever\b(?= (it|they|the|a|is|was|one|comes|has)\b)": "name the thing",
    r"\bas of old\b": "as before",
    r"\bwhat of (it|them)\b": "say which part",
    r"\bwhat becomes of\b": "say what happens to",
    r"\bno more than into\b": "say where it belongs",
    r"\bbelongs? into\b": "belongs in",
    r"\bis it well\b": "healthy",
    r"\bat most so many\b": "maximum number of",
}
BRITISH = {
    "behaviour": "behavior", "colour": "color", "favour": "favor", "honour": "honor",
    "neighbour": "neighbor", "labour": "labor", "centre": "center", "metre": "meter",
    "serialise": "serialize", "normalise": "normalize", "initialise": "initialize",
    "optimise": "optimize", "organise": "organize", "recognise": "recognize",
    "summarise": "summarize", "analyse": "analyze", "catalogue": "catalog",
    "licence": "license", "defence": "defense", "judgement": "judgment",
    "cancelled": "canceled", "labelled": "labeled", "modelling": "modeling",
    "travelled": "traveled", "artefact": "artifact", "grey": "gray", "ageing": "aging",
}  # fmt: skip
ACCEPTED = {"cancelled"}  # asyncio's spelling, which many names use
SPELLING = re.compile(
    r"\b(" + "|".join(word for word in BRITISH if word not in ACCEPTED) + r")(s|d|r|ed|ing)?\b",
    re.IGNORECASE,
)


class Finding(NamedTuple):
    """A line that breaks a rule."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.message}"


# ------------------------------------------------------------------ pages


def check_page(path: Path) -> Iterator[Finding]:
    """Yield the findings on a page of Markdown."""
    lengths: list[int] = []
    for first, text in _blocks(path.read_text(encoding="utf-8")):
        if text.startswith("#"):
            heading = text.lstrip("# ").strip()
            if RIDDLE.match(heading) and not HEADINGS_OF_THE_FIELD.match(heading):
                yield Finding(path, first, f"heading {heading!r}; write what readers search for")
        else:
            for sentence in _sentences(text):
                words = len(sentence.split())
                lengths.append(words)
                if words > MOST_WORDS:
                    start = " ".join(sentence.split()[:6])
                    yield Finding(
                        path, first, f"{words} words in {start!r}...; write at most {MOST_WORDS}"
                    )
        yield from _check_words(path, first, text)
    average = sum(lengths) / len(lengths) if lengths else 0
    if len(lengths) >= FEWEST_SENTENCES and average > MOST_WORDS_ON_AVERAGE:
        yield Finding(
            path, 1, f"{average:.1f} words a sentence; write at most {MOST_WORDS_ON_AVERAGE}"
        )


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each heading, paragraph and item of a page, without markup, and its first line."""
    block: list[str] = []
    begins, fence = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence):
                fence = ""
            continue
        if marks := re.match(r"(`{3,}|~{3,})", stripped):
            fence = marks[1]
        is_item = re.match(r"([-*+]|\d+\.|>)\s", stripped)
        ends = fence or not stripped or is_item or stripped[0] in "#|<!" or line[:4] == "    "
        if ends and block:
            yield begins, _without_markup(" ".join(block))
            block = []
        if fence or not stripped or stripped[0] in "|<" or (line[:4] == "    " and not is_item):
            continue
        if stripped[0] == "#":
            yield number, _without_markup(stripped)
            continue
        if not block:
            begins = number
        block.append(re.sub(r"^([-*+]|\d+\.|>)\s+", "", stripped))


def _without_markup(text: str) -> str:
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"<[^>]+>|https?://\S+|\*\*|[*_](?=\w)|(?<=\w)[*_]", "", text)


def _sentences(text: str) -> list[str]:
    # A sentence may begin with code, which is the word "code" here, and end with a bracket.
    ends = r"(?<=[.!?])\s+(?=[A-Z(\"']|code\b)|(?<=[:;])\s+|(?<=[.!?][)\"'])\s+(?=[A-Z(\"'])"
    return [part for part in re.split(ends, text) if part.split()]


def _check_words(path: Path, line: int, text: str) -> Iterator[Finding]:
    for pattern, cure in WORN.items():
        if found := re.search(pattern, text, re.IGNORECASE):
            yield Finding(path, line, f"{found[0]!r}; {cure}")
    for found in SPELLING.finditer(text):
        written = found[0].lower()
        stem = next(word for word in BRITISH if written.startswith(word))
        yield Finding(path, line, f"{found[0]!r}; American spelling: {BRITISH[stem]}")


# ------------------------------------------------------------------ docstrings


def check_docstrings(paths: list[Path]) -> Iterator[Finding]:
    """Yield the findings on the docstrings of source files."""
    first_lines: list[tuple[Path, int, str]] = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ):
                continue
            if text := ast.get_docstring(node):
                line = node.body[0].lineno
                first_lines.append((path, line, text.splitlines()[0]))
                yield from _check_words(path, line, re.sub(r"``[^`]*``|`[^`]*`", "code", text))
    limits = {
        "begins as a clause": (CLAUSE.match, MOST_CLAUSES_PERCENT),
        "holds a bare pronoun": (PRONOUN.search, MOST_PRONOUNS_PERCENT),
    }
    for what, (matches, most) in limits.items():
        found = [(path, line, text) for path, line, text in first_lines if matches(text)]
        percent = 100 * len(found) / max(1, len(first_lines))
        if percent > most:
            for path, line, text in found:
                yield Finding(path, line, f"{text!r} {what}; name the subject")
            path, line, _ = found[0]
            yield Finding(path, line, f"{percent:.1f} % of first lines; write at most {most} %")


def main() -> int:
    """Check the files, and print the findings."""
    parser = argparse.ArgumentParser(description="Check the style of pages and docstrings.")
    parser.add_argument("files", nargs="*", type=Path, help="By default all of them.")
    arguments = parser.parse_args()
    files = [file.resolve() for file in arguments.files] or _tracked()
    findings = [finding for file in files if file.suffix == ".md" for finding in check_page(file)]
    findings += check_docstrings([file for file in files if file.suffix == ".py"])
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def _tracked() -> list[Path]:
    listed = subprocess.run(  # nosec B603 B607  # git, by name
        ["git", "ls-files", "*.md", "src/openenv/*.py", "envs/*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    # Templates are checked in rendered form, mirrors repeat the texts of the mirrored modules, and
    # RFCs keep their accepted text.
    left_out = (
        "src/openenv/auto/",
        "src/openenv/core/",
        "src/openenv/cli/template",
        "src/openenv/evals/templates",
        "rfcs/",
        "tests/",
    )
    return [ROOT / name for name in listed if not name.startswith(left_out)]


if __name__ == "__main__":
    sys.exit(main())
