"""The web page: time to first paint, memory growth over 60 actions, and 50 concurrent visitors.

    python benchmarks/page.py [--visitors 50] [--write]

The program runs a real Chromium and the server of `openenv serve blackjack --web`, over loopback.
First contentful paint is the browser's own measure, in five cold contexts. The heap is measured
after a garbage collection. Visitors are tabs, each with a session, which all play at the same time.
Progress goes to stderr, the table to stdout, and with `--write` into `results/page.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine
from benchmarks.report import RESULTS
from playwright.async_api import Browser, CDPSession, Page, async_playwright

from browser_env.server.chromium import find_executable, wants_sandbox
from openenv import VectorEnv

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ACTIONS = 60


def served() -> tuple[subprocess.Popen[str], str]:
    """Start a server in a process of its own; return the process and its address."""
    command = [sys.executable, "-m", "openenv.cli", "serve", "blackjack", "--web"]
    environment = {**os.environ, "MAX_CONCURRENT_ENVS": "1100"}
    process = subprocess.Popen(
        [*command, "--port", "0", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def resident_mib(pid: int) -> float:
    """Return a process's resident memory in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def begun(page: Page, url: str) -> None:
    await page.goto(f"{url}/web/")
    await page.get_by_role("button", name="Start an episode").click()
    await page.get_by_text("Episode 1, its beginning").wait_for()


async def acted(page: Page, number: int) -> None:
    """Reset once, and wait until the page shows the episode."""
    await page.get_by_role("button", name="Reset", exact=True).click()
    await page.get_by_text(f"Episode {number}, its beginning").wait_for()


async def paints(browser: Browser, url: str, rounds: int = 5) -> list[float]:
    """Return the first contentful paint in milliseconds, each in a context without a cache."""
    found = []
    for _ in range(rounds):
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{url}/web/")
        await page.get_by_role("button", name="Start an episode").wait_for()
        found.append(await page.evaluate(PAINT))
        await context.close()
    return found


async def weighed(debugger: CDPSession) -> dict[str, float]:
    """Return the page's heap in MiB and its number of nodes, after a garbage collection."""
    await debugger.send("HeapProfiler.collectGarbage")
    told = await debugger.send("Performance.getMetrics")
    values = {one["name"]: one["value"] for one in told["metrics"]}
    return {"heap_mib": values["JSHeapUsedSize"] / 2**20, "nodes": values["Nodes"]}


async def grown(browser: Browser, url: str, pid: int) -> dict[str, Any]:
    """Return the memory before and after 60 actions, which follow 60 actions of warm-up."""
    page = await browser.new_page()
    debugger = await page.context.new_cdp_session(page)
    await debugger.send("Performance.enable")
    await begun(page, url)
    for number in range(2, 2 + ACTIONS):
        await acted(page, number)
    before, server_before = await weighed(debugger), resident_mib(pid)
    for number in range(2 + ACTIONS, 2 + 2 * ACTIONS):
        await acted(page, number)
    after, server_after = await weighed(debugger), resident_mib(pid)
    await page.close()
    return {"before": before, "after": after, "server_mib": server_after - server_before}


async def visited(browser: Browser, url: str, visitors: int) -> dict[str, Any]:
    """Let all visitors play ten episodes at the same time."""
    pages = [await browser.new_page() for _ in range(visitors)]
    for page in pages:
        await begun(page, url)
    times: list[float] = []

    async def play(page: Page) -> None:
        for number in range(2, 12):
            began = time.perf_counter()
            await acted(page, number)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(play, pages))
    seconds = time.perf_counter() - began
    for page in pages:
        await page.close()
    times.sort()
    return {
        "visitors": visitors,
        "actions": len(times),
        "seconds": seconds,
        "p50_s": statistics.median(times),
        "p99_s": times[int(len(times) * 0.99) - 1],
    }


def stepped(envs: VectorEnv, seconds: float = 3.0) -> float:
    """Return the steps per second of all sessions together."""
    actions: Any = [{"action": "stand"}] * envs.num_envs
    rounds, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(actions)
        rounds += 1
    return rounds * envs.num_envs / (time.perf_counter() - began)


async def watched(browser: Browser, url: str, sessions: int = 1000) -> dict[str, Any]:
    """Measure the steps of a thousand sessions, alone and while a page watches and follows one."""
    envs: VectorEnv = await asyncio.to_thread(VectorEnv, url, sessions)
    await asyncio.to_thread(envs.reset)
    page = await browser.new_page()
    rates: dict[str, list[float]] = {"alone": [], "watched": []}
    for _ in range(3):
        await page.goto("about:blank")
        rates["alone"].append(await asyncio.to_thread(stepped, envs))
        await page.goto(f"{url}/web/#watch")
        await page.get_by_role("button", name="Follow").first.click()
        await page.get_by_text("following session").wait_for()
        rates["watched"].append(await asyncio.to_thread(stepped, envs))
    await page.close()
    await asyncio.to_thread(envs.close)
    return {"sessions": sessions, **rates}


async def measure(visitors: int) -> dict[str, Any]:
    process, url = served()
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=find_executable(playwright, None), chromium_sandbox=wants_sandbox()
            )
            sys.stderr.write("first paint\n")
            found: dict[str, Any] = {"paint_ms": await paints(browser, url)}
            sys.stderr.write("60 actions\n")
            found["growth"] = await grown(browser, url, process.pid)
            sys.stderr.write(f"{visitors} visitors\n")
            found["visitors"] = await visited(browser, url, visitors)
            sys.stderr.write("1000 sessions that are watched\n")
            found["watched"] = await watched(browser, url)
            await browser.close()
        return found
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the web page.")
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.visitors))
    growth, many = found["growth"], found["visitors"]
    print(f"first contentful paint   {statistics.median(found['paint_ms']):.0f} ms, median of 5")
    print(
        f"60 actions               heap {growth['before']['heap_mib']:.2f} -> "
        f"{growth['after']['heap_mib']:.2f} MiB, nodes {growth['before']['nodes']:.0f} -> "
        f"{growth['after']['nodes']:.0f}, server {growth['server_mib']:+.2f} MiB"
    )
    print(
        f"{many['visitors']} visitors at once     {many['actions']} actions in "
        f"{many['seconds']:.1f} s; p50 {many['p50_s']:.2f} s, p99 {many['p99_s']:.2f} s"
    )
    alone, under = (statistics.median(found["watched"][one]) for one in ("alone", "watched"))
    print(
        f"{found['watched']['sessions']} sessions            {alone:,.0f} steps/s alone, "
        f"{under:,.0f} watched ({under / alone:.2f})"
    )
    if given.write:
        path = RESULTS / "page.json"
        path.write_text(json.dumps({"machine": machine.describe(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
