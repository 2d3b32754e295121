"""``openenv.yaml``: an environment that is served."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from openenv.manifest import MANIFEST, read_manifest
from openenv.manifest import ManifestError as UnreadableManifest
from openenv.validation.manifest import (
    AnyManifest,
    ManifestError,
    NormalizedManifest,
    NormalizedManifestV2,
)
from openenv.validation.signature import refuse_unsupported
from openenv.validation.types import SignatureKind

__all__ = ["EXAMPLE", "OpenEnvYamlParser", "normalized"]

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


class OpenEnvYamlParser:
    """Reads the section ``validation`` of an ``openenv.yaml``."""

    signature = SignatureKind.OPENENV_SERVED

    def parse(self, package_root: Path) -> AnyManifest:
        """Read what an environment declares.

        Raises:
            ManifestError: It declares something wrong, or too little.
            UnsupportedPackageError: Its tags name a category that cannot be validated here.
        """
        try:
            content = read_manifest(package_root)
        except UnreadableManifest as error:
            raise ManifestError([str(error)]) from error
        if content is None:
            raise ManifestError([f"{package_root} has no {MANIFEST}"])
        section = content.get("validation")
        if section is None:
            raise ManifestError(
                [f"{MANIFEST} has no section `validation`"],
                remediation=f"add to {MANIFEST}, with your own numbers:\n{EXAMPLE}",
            )
        if not isinstance(section, dict):
            raise ManifestError(
                [f"`validation` of {MANIFEST} is {type(section).__name__}; expected a mapping"],
                remediation=f"write it in {MANIFEST} as:\n{EXAMPLE}",
            )
        about = {key: value for key, value in content.items() if key in ("name", "version")}
        return normalized(about, section, self.signature)


def normalized(
    about: Mapping[str, Any], section: Mapping[str, Any], signature: SignatureKind
) -> AnyManifest:
    """Make the manifest of what a package says.

    Args:
        about: Its name and version.
        section: The further fields of the manifest.
        signature: What it was read from.

    Raises:
        ManifestError: A field is wrong, missing or unknown: one sentence for each.
        UnsupportedPackageError: Its tags name a category that cannot be validated here.
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
        problems = [_problem(one, model) for one in error.errors()]
        raise ManifestError(
            problems,
            remediation=f"in the section `validation` of {signature.value}, mend what is named; "
            f"a whole one is:\n{EXAMPLE}",
        ) from error
    assert isinstance(made, NormalizedManifest | NormalizedManifestV2)
    return made


def _refuse_tags(section: Mapping[str, Any]) -> None:
    types = section.get("types")
    tags = types.get("tags") if isinstance(types, dict) else None
    if isinstance(tags, list):
        refuse_unsupported(tag for tag in tags if isinstance(tag, str))


def _problem(error: Any, model: type[BaseModel]) -> str:
    """One sentence: which field, what came, what was expected."""
    path = ".".join(str(part) for part in error["loc"])
    kind, given = error["type"], error.get("input")
    if kind == "missing":
        return f"{path}: is missing"
    if kind == "extra_forbidden":
        known = _names_beside(error["loc"], model)
        close = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
        meant = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
        return f"{path}: is no field{meant if known else ''}"
    if kind == "value_error":
        return f"{path or 'validation'}: {error['ctx']['error']}"
    return f"{path}: {_lowered(error['msg'])}, not {given!r:.100}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _names_beside(path: tuple[Any, ...], model: type[BaseModel]) -> list[str]:
    """The names of the fields that stand where a path leads."""
    for part in path[:-1]:
        field = model.model_fields.get(str(part))
        inner = [] if field is None else _models_in(field.annotation)
        if not inner:
            return []
        model = inner[0]
    return [name for name in model.model_fields if name not in _OURS]


_OURS = {"signature", "manifest_schema_version"}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
