"""Take the screenshots of the web page for the docs: `python scripts/screenshots.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Page, sync_playwright

from browser_env.server.chromium import find_executable, wants_sandbox
from openenv import GenericEnvClient

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SIZE = {"width": 1200, "height": 900}


@contextmanager
def served(environment: str) -> Iterator[str]:
    """Serve an environment with its web page from another process; yield the address."""
    command = [sys.executable, "-m", "openenv.cli", "serve", environment, "--web", "--port", "0"]
    with subprocess.Popen(  # nosec B603  # no shell
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield json.loads(cast("Any", process.stdout).readline())["url"]
        finally:
            process.terminate()


def play(page: Page) -> None:
    """Take the picture of a game of chess, after two moves."""
    with served("chess") as url:
        page.goto(f"{url}/web/")
        page.get_by_label("Seed").fill("3")
        page.get_by_text("More arguments").click()
        page.get_by_label("white", exact=True).check()
        page.get_by_text("More arguments").click()
        page.get_by_role("button", name="Start an episode").click()
        for number, move in enumerate(("e2e4", "d2d4"), 1):
            page.get_by_role("button", name=move, exact=True).click()
            page.get_by_text(f"Episode 1, step {number}").wait_for()
        page.screenshot(path=PICTURES / "web-play.png")


def watch(page: Page) -> None:
    """Take the picture of a game of 2048 that the page follows."""
    with served("2048") as url, GenericEnvClient(base_url=url).sync() as env:
        env.reset(seed=1)
        page.goto(f"{url}/web/#watch")
        page.get_by_role("button", name="Follow").first.click()
        page.get_by_text("following session").wait_for()
        result = env.step({"move": "left"})
        for number in range(30):
            legal = result.observation["legal_actions"]
            result = env.step({"move": legal[number % len(legal)]})
        page.get_by_text("step 0.31, reward").wait_for()
        page.screenshot(path=PICTURES / "web-watch.png")


def main() -> None:
    """Take all pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_executable(cast("Any", playwright), None),
            chromium_sandbox=wants_sandbox(),
        )
        for take in (play, watch):
            take(browser.new_page(viewport=cast("Any", SIZE)))
        browser.close()


if __name__ == "__main__":
    main()
