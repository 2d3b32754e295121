"""Readers of packages: each makes the one manifest of one form. None runs what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from openenv.errors import OpenEnvError
from openenv.validation.manifest import AnyManifest
from openenv.validation.signature import UnsupportedPackageError
from openenv.validation.types import SignatureKind

__all__ = ["Parser", "ParserRegistry", "default_parsers"]


@runtime_checkable
class Parser(Protocol):
    """Reads packages of one form.

    Attributes:
        signature: Which.
    """

    signature: SignatureKind

    def parse(self, package_root: Path) -> AnyManifest:
        """Read what a package declares; nothing of it is imported or run.

        Raises:
            ManifestError: It declares something wrong, or too little.
            UnsupportedPackageError: It is of a category that cannot be validated here.
        """
        ...


class ParserRegistry:
    """Parsers by form."""

    def __init__(self, parsers: Iterable[Parser] = ()) -> None:
        self._parsers: dict[SignatureKind, Parser] = {}
        for parser in parsers:
            self.register(parser)

    def register(self, parser: Parser) -> None:
        """Add a parser.

        Raises:
            ParserError: Its form has one.
        """
        if parser.signature in self._parsers:
            raise ParserError(f"{parser.signature.value} has a parser already")
        self._parsers[parser.signature] = parser

    def parser_for(self, signature: SignatureKind) -> Parser:
        """The parser of a form.

        Raises:
            UnsupportedPackageError: It has none.
        """
        try:
            return self._parsers[signature]
        except KeyError:
            raise UnsupportedPackageError(
                "parser-not-implemented", f"nothing reads {signature.value}"
            ) from None


class ParserError(OpenEnvError, ValueError):
    """A form has two parsers."""


def default_parsers() -> ParserRegistry:
    """The parsers that come with the package."""
    from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
    from openenv.validation.parsers.tasks import HarborParser, PostTrainParser

    return ParserRegistry([OpenEnvYamlParser(), HarborParser(), PostTrainParser()])
