"""What `scripts/audit.py` says of what it has found, and of what it could not find out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "audit.py"
VULNERABLE = {"old 1.0": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}], "new 2.0": []}


@pytest.fixture
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("known", "unknown", "code", "strict_code", "said"),
    [
        ({"new 2.0": []}, set(), 0, 0, "1 packages, 0 vulnerable"),
        (VULNERABLE, set(), 1, 1, "old 1.0: PYSEC-1, fixed in 1.1"),
        (VULNERABLE, {"other"}, 1, 1, "NOT AUDITED: 1 packages"),
        ({"new 2.0": []}, {"other"}, 0, 1, "NOT AUDITED: 1 packages"),
        ({}, {"a", "b"}, 0, 1, "NOT AUDITED: 2 packages"),
        ({}, set(), 0, 1, "NOT AUDITED: all packages"),
    ],
)
def test_what_is_not_known_is_not_passed_over(
    audit: Any,
    known: Any,
    unknown: Any,
    code: int,
    strict_code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert audit.report(known, unknown, strict=False) == code
    assert audit.report(known, unknown, strict=True) == strict_code
    assert said in "".join(capsys.readouterr())


def test_a_service_that_does_not_answer_is_said_to(
    audit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "TIMEOUT_S", 0.001)
    assert audit.looked_up("pypi", audit.LOCK) == []
    assert "no answer within 0.001 s" in capsys.readouterr().err


@pytest.mark.slow
def test_a_lock_that_cannot_be_read_is_not_audited(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--strict", "--lock", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1 and "NOT AUDITED: all packages" in done.stderr
