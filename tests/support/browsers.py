"""A real Chromium, and what axe-core (Deque Systems) finds in its pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from browser_env.server.chromium import find_executable, wants_sandbox

ROOT = Path(__file__).parents[2]
TRY_LATER = 75


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_executable(cast("Any", playwright), None),
            chromium_sandbox=wants_sandbox(),
            args=["--disable-gpu", "--disable-quic"],
        )
        yield browser
        browser.close()


def axe_core() -> str:
    """The source of axe-core, installed as `scripts/npx.py` does."""
    install = "import sys; sys.path.insert(0, 'scripts'); import npx; npx.install()"
    done = subprocess.run(
        [sys.executable, "-c", install], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == TRY_LATER:
        pytest.skip("the npm registry cannot be reached")
    assert done.returncode == 0, done.stderr
    return (ROOT / ".npm" / "node_modules" / "axe-core" / "axe.min.js").read_text()


def serious_findings(page: Page, axe: str) -> list[str]:
    """What axe-core finds that is serious or worse, and where."""
    page.evaluate(axe)  # by the debugger's way in, which the page's policy does not see
    found: dict[str, Any] = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
