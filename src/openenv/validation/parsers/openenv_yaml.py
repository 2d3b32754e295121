"""The parser of ``openenv.yaml``, the format of served environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from openenv.manifest import MANIFEST, check_manifest
from openenv.manifest import ManifestError as UnreadableManifest
from openenv.manifest.reading import describe_error
from openenv.validation.manifest import (
    AnyManifest,
    DeclarationError,
    NormalizedManifest,
    NormalizedManifestV2,
)
from openenv.validation.signature import refuse_unsupported
from openenv.validation.types import SignatureKind

__all__ = ["EXAMPLE", "OpenEnvYamlParser", "normalize_manifest"]

EXAMPLE = """\
validation:
  reward: {range: [0.0, 1.0], floor_margin: 0.5}
  resources: {cpu: 1, memory_mb: 1024, disk_mb: 512, episode_timeout_s: 300}
  capabilities:
    verifier: {kind: reward_channel}
    oracle: {form: script, location: validation/oracle.json}
  types: {tags: [game]}
  execution: {probe_path: validation/runtime.json, dockerfile: server/Dockerfile}
"""


WHOLE = f"mend what is named; a whole one is:\n{EXAMPLE}"


class OpenEnvYamlParser:
    """The parser of the section ``validation`` in an ``openenv.yaml``."""

    signature = SignatureKind.OPENENV_SERVED

    def parse(self, package_root: Path) -> AnyManifest:
        """Read an environment's declarations.

        Raises:
            DeclarationError: The declarations are wrong or incomplete.
            UnsupportedPackageError: A tag names a category that cannot be validated here.
        """
        path = package_root / MANIFEST
        if not path.is_file():
            raise DeclarationError([f"{package_root} has no {MANIFEST}"])
        try:
            checked = check_manifest(path)
        except UnreadableManifest as error:
            raise DeclarationError([str(error)]) from error
        section = checked.content.get("validation")
        if isinstance(section, dict):
            _refuse_tags(section)
        if checked.errors:
            remedy = f"in the section `validation` of {MANIFEST}, {WHOLE}"
            if not all(problem.path.startswith("validation") for problem in checked.errors):
                schema = "`openenv manifest schema` says what may stand there"
                remedy = f"mend what is named in {MANIFEST}; {schema}"
            texts = [str(problem) for problem in checked.errors]
            raise DeclarationError(texts, remediation=remedy, problems=checked.errors)
        if checked.manifest is None or section is None:
            raise DeclarationError(
                [f"{MANIFEST} has no section `validation`", *map(str, checked.warnings)],
                remediation=f"add to {MANIFEST}, with your own numbers:\n{EXAMPLE}",
            )
        about = checked.manifest.model_dump(include={"name", "version"}, exclude_none=True)
        given = {name: value for name, value in section.items() if value is not None}
        return normalize_manifest(about, given, self.signature)


def normalize_manifest(
    about: Mapping[str, Any], section: Mapping[str, Any], signature: SignatureKind
) -> AnyManifest:
    """Make the normalized manifest from a package's name, version and declarations.

    Raises:
        DeclarationError: Fields are wrong, missing or unknown; there is one sentence for each.
        UnsupportedPackageError: A tag names a category that cannot be validated here.
    """
    is_run = "execution" in section
    model: type[BaseModel] = NormalizedManifestV2 if is_run else NormalizedManifest
    content = {
        **section,
        **about,
        "signature": signature,
        "manifest_schema_version": "2" if is_run else "1",
    }
    _refuse_tags(section)
    try:
        made = model.model_validate(content)
    except ValidationError as error:
        raise DeclarationError(
            [describe_error(one, model, "validation") for one in error.errors()],
            remediation=f"in the section `validation` of {signature.value}, {WHOLE}",
        ) from error
    assert isinstance(made, NormalizedManifest | NormalizedManifestV2)
    return made


def _refuse_tags(section: Mapping[str, Any]) -> None:
    types = section.get("types")
    tags = types.get("tags") if isinstance(types, dict) else None
    if isinstance(tags, list):
        refuse_unsupported(tag for tag in tags if isinstance(tag, str))
