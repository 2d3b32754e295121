"""Artifacts beside a report: the evidence, and the machine's description."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from openenv._internal.redaction import redact
from openenv._internal.version import version
from openenv.validation.context import Startup
from openenv.validation.graders import Evidence, RuntimeEvidence
from openenv.validation.static.builds import ImageBuilds

__all__ = ["RUN_FILE", "TRANSCRIPT_FILE", "artifacts_directory", "write_evidence"]

RUN_FILE, TRANSCRIPT_FILE = "run.json", "transcript.jsonl"


def artifacts_directory(report: Path) -> Path:
    """Return the directory of a report's artifacts, beside the report: ``<name>.artifacts``."""
    return report.with_name(f"{report.stem}.artifacts")


def write_evidence(directory: Path, evidence: Evidence, **more: Any) -> None:
    """Write the evidence: ``run.json``, and the measured episode as ``transcript.jsonl``.

    Text that looks like a secret is replaced.

    Args:
        directory: The directory.
        evidence: The collected evidence.
        **more: Further facts for ``run.json``, as JSON data.
    """
    startup, builds = evidence.get(Startup), evidence.get(ImageBuilds)
    facts = {
        "openenv": version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "startup": None if startup is None else asdict(startup),
        "images": [] if builds is None else [f"sha256:{built.id}" for built in builds.built],
        **more,
    }
    text = json.dumps(facts, indent=2, default=str) + "\n"
    (directory / RUN_FILE).write_text(redact(text), encoding="utf-8")
    seen = evidence.get(RuntimeEvidence)
    if seen is not None:
        lines = [json.dumps(asdict(exchange)) + "\n" for exchange in seen.exchanges]
        path = directory / TRANSCRIPT_FILE
        path.write_text(redact("".join(lines)), encoding="utf-8")
