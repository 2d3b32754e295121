"""Parsers of packages: each turns a package format into the normalized manifest.

Parsers only read files; no code of a package is imported or run. Read this module first, then
`openenv_yaml.py`.
"""

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
    """A parser of a package format.

    Attributes:
        signature: The format.
    """

    signature: SignatureKind

    def parse(self, package_root: Path) -> AnyManifest:
        """Read a package's declarations without importing or running any code.

        Raises:
            DeclarationError: The declarations are wrong or incomplete.
            UnsupportedPackageError: The package belongs to a category that cannot be validated
                here.
        """
        ...


class ParserRegistry:
    """Parsers by format."""

    def __init__(self, parsers: Iterable[Parser] = ()) -> None:
        self._parsers: dict[SignatureKind, Parser] = {}
        for parser in parsers:
            self.register(parser)

    def register(self, parser: Parser) -> None:
        """Add a parser.

        Raises:
            ParserError: The format already has a parser.
        """
        if parser.signature in self._parsers:
            raise ParserError(f"{parser.signature.value} already has a parser")
        self._parsers[parser.signature] = parser

    def parser_for(self, signature: SignatureKind) -> Parser:
        """Return the parser of a format.

        Raises:
            UnsupportedPackageError: The format has no parser.
        """
        try:
            return self._parsers[signature]
        except KeyError:
            raise UnsupportedPackageError(
                "parser-not-implemented", f"nothing reads {signature.value}"
            ) from None


class ParserError(OpenEnvError, ValueError):
    """A second parser for a format."""


def default_parsers() -> ParserRegistry:
    """Return a registry with the built-in parsers."""
    from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
    from openenv.validation.parsers.tasks import HarborParser, PostTrainParser

    return ParserRegistry([OpenEnvYamlParser(), HarborParser(), PostTrainParser()])
