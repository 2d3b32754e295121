"""Run the official conformance suite against our MCP server, and write the report.

Serves `tests/tools/conformance_env.py`, runs the scenarios that each protocol revision requires,
and writes docs/reference/mcp-conformance.md; with ``--check`` compares the report instead. Exits
with 1 if a check fails that is not in `EXPECTED`, if an expected failure passes, or, with
``--check``, if the report differs. scripts/npx.py installs the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "reference" / "mcp-conformance.md"
SERVER = ROOT / "tests" / "tools" / "conformance_env.py"
NPX = ROOT / "scripts" / "npx.py"
SUITE = "@modelcontextprotocol/conformance"
PACKAGE = ROOT / ".npm" / "node_modules" / SUITE
REVISIONS = ("2026-07-28", "2025-11-25")
TIMEOUT_S = 300.0

ASKS = (
    "A tool asks its client for something (sampling, elicitation, roots). A call of an "
    "environment's tool is a step. Trainers, recordings and replays make it too, with nobody to "
    "ask, and it may run in another process. An environment shows its question in the result, and "
    "the agent answers by the next call."
)
LOGS = (
    "The server logs to its client, which revision 2026-07-28 deprecates (SEP-2577). A tool "
    "reports in its result. A server's log is for its operators."
)
# Scenarios that pass without a test, because the server lacks the tool that they call.
UNTRIED = {
    "input-required-result-missing-input-response",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
}

NO_TOOL = "they call a tool that is not there"

TASKS = "The extension `io.modelcontextprotocol/tasks` is not offered."

# Checks that are known to fail, as scenario or scenario:check, each with its reason.
EXPECTED = {
    "logging-set-level": LOGS,
    "tools-call-with-logging": LOGS,
    "tools-call-sampling": ASKS,
    "tools-call-elicitation": ASKS,
    "elicitation-sep1034-defaults": ASKS,
    "elicitation-sep1330-enums": ASKS,
    "server-stateless:sep-2575-server-rejects-undeclared-capability": ASKS,
    "server-stateless:sep-2575-missing-capability-http-400": ASKS,
    "input-required-result-basic-elicitation": ASKS,
    "input-required-result-basic-sampling": ASKS,
    "input-required-result-basic-list-roots": ASKS,
    "input-required-result-request-state": ASKS,
    "input-required-result-multiple-input-requests": ASKS,
    "input-required-result-multi-round": ASKS,
    "input-required-result-non-tool-request": ASKS,
    "input-required-result-result-type": ASKS,
    "input-required-result-tampered-state": ASKS,
    "input-required-result-capability-check": ASKS,
    "tasks-lifecycle": TASKS,
    "tasks-capability-negotiation": TASKS,
    "tasks-wire-fields": TASKS,
    "tasks-request-state-removal": TASKS,
    "tasks-mrtr-input": TASKS,
    "tasks-request-headers": TASKS,
    "tasks-dispatch-and-envelope": TASKS,
    "tasks-required-task-error": TASKS,
    "tasks-mrtr-composition": TASKS,
}


@dataclass
class Outcome:
    """The result of a scenario: its checks by status.

    `required` is the reason why the scenario does not count, or empty if it counts.
    """

    scenario: str
    required: str
    passed: int = 0
    warned: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> list[str]:
        """The reasons why the scenario is expected to fail."""
        return list(dict.fromkeys(reason for key, reason in EXPECTED.items() if self._is(key)))

    def _is(self, key: str) -> bool:
        return key.partition(":")[0] == self.scenario

    @property
    def surprises(self) -> list[str]:
        """The unexpected results, in words."""
        expected = [key for key in EXPECTED if self._is(key)]
        found = []
        for check, why in self.failed.items():
            if not {self.scenario, f"{self.scenario}:{check}"} & set(expected):
                found.append(f"{self.scenario}: {check} fails: {why}")
        for key in expected:
            _, _, check = key.partition(":")
            if not (check in self.failed if check else self.failed):
                found.append(f"{key} passes; it is no longer to be expected to fail")
        return found


# ------------------------------------------------------------------ running the suite


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve the environment that the suite expects; yield the address of its `/mcp`."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "openenv.cli", "serve", str(SERVER), "--port=0", "--json"]
    with subprocess.Popen(  # nosec B603  # no shell
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as server:
        assert server.stdout is not None
        try:
            yield f"{json.loads(server.stdout.readline())['url']}/mcp"
        finally:
            server.terminate()


def run(url: str, revision: str) -> list[Outcome]:
    """Run the scenarios that a revision requires."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["server", "--url", url, "--requirements", revision, "--output-dir", folder]
        done = subprocess.run(  # nosec B603  # no shell
            [sys.executable, str(NPX), "conformance", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode not in (0, 1):  # 1: a check fails, which this program judges
            print(done.stderr, file=sys.stderr)
            sys.exit(done.returncode)
        asked = yaml.safe_load((PACKAGE / "requirements" / f"{revision}.yaml").read_text("utf-8"))
        uncounted = {
            one["scenario"]: one["reason"].replace("-", " ")
            for one in asked["not_scored"]
            if one["leg"] == "server"
        }
        found = [Outcome(name, "") for name in asked["server"]]
        found += [Outcome(name, reason) for name, reason in uncounted.items()]
        for outcome in found:
            read_checks(Path(folder), outcome)
    return found


def read_checks(folder: Path, outcome: Outcome) -> None:
    """Read the suite's results for a scenario."""
    files = list(folder.glob(f"server-{outcome.scenario}-????-??-??T*/checks.json"))
    if not files:
        outcome.failed["not run"] = "the suite has no result of it"
    for file in files:
        for check in json.loads(file.read_text(encoding="utf-8")):
            count(check, outcome)


def count(check: dict[str, Any], outcome: Outcome) -> None:
    """Add one check to the outcome."""
    words = str(check.get("errorMessage") or check.get("description") or "")
    if check["status"] == "SUCCESS":
        outcome.passed += 1
    elif check["status"] == "FAILURE":
        outcome.failed[check["id"]] = words
    elif check["status"] == "WARNING":
        outcome.warned[check["id"]] = words


# ------------------------------------------------------------------ the report


def report(results: dict[str, list[Outcome]]) -> str:
    """Return the page as Markdown."""
    version = json.loads((PACKAGE / "package.json").read_text("utf-8"))["version"]
    reasons = list(dict.fromkeys(EXPECTED.values()))
    lines = [
        "<!-- Written by scripts/conformance.py. -->",
        "",
        "# MCP conformance",
        "",
        f"This page has the findings of the official suite, `{SUITE}` {version}. The suite runs "
        "against `tests/tools/conformance_env.py`: an `MCPEnvironment` with methods and with a "
        f"server of the official SDK (`mcp` {metadata.version('mcp')}), served at `/mcp`. `make "
        "conformance` runs it and writes this page. CI fails if a check fails unexpectedly, or if "
        "a check passes that is expected to fail.",
        "",
        "```text",
        f"npx {SUITE}@{version} server --url http://127.0.0.1:8000/mcp --requirements REVISION",
        "```",
    ]
    for revision, outcomes in results.items():
        counted = [one for one in outcomes if not one.required]
        failing = [one for one in counted if one.failed]
        untried = [one for one in counted if one.scenario in UNTRIED]
        passing = len(counted) - len(failing) - len(untried)
        lines += [
            "",
            f"## Revision {revision}",
            "",
            f"Of the {len(counted)} scenarios that the revision requires {passing} pass, and "
            f"{len(failing)} are expected to fail."
            + (f" {len(untried)} have nothing to try: {NO_TOOL}." if untried else ""),
            "",
            "| Scenario | Checks passed | Failed | |",
            "| --- | --: | --: | --- |",
            *(row(one, reasons) for one in outcomes),
        ]
    lines += ["", "## Why some are expected to fail", ""]
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


def row(outcome: Outcome, reasons: list[str]) -> str:
    """Return a scenario as a row of the table."""
    notes = []
    if outcome.required:
        notes.append(f"not counted: {outcome.required}")
    if outcome.failed:
        numbers = ", ".join(str(reasons.index(one) + 1) for one in outcome.reasons)
        notes.append(f"expected to fail, reason {numbers}" if numbers else "**fails**")
    if outcome.scenario in UNTRIED:
        notes.append("nothing to try")
    elif outcome.warned:
        notes.append("recommended, and not done: " + ", ".join(sorted(outcome.warned)))
    cells = [outcome.scenario, str(outcome.passed), str(len(outcome.failed)), "; ".join(notes)]
    return f"| {' | '.join(cells).rstrip()} |"


def main() -> int:
    """Run the suite, and write or check the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with served() as url:
        results = {revision: run(url, revision) for revision in REVISIONS}
    surprises = [
        f"{revision}: {surprise}"
        for revision, outcomes in results.items()
        for outcome in outcomes
        for surprise in outcome.surprises
    ]
    seen = {one.scenario for outcomes in results.values() for one in outcomes}
    surprises += [
        f"{key}: the suite has no such scenario"
        for key in EXPECTED
        if key.partition(":")[0] not in seen
    ]
    for surprise in surprises:
        print(f"conformance: {surprise}", file=sys.stderr)
    page = report(results)
    if not arguments.check:
        REPORT.write_text(page, encoding="utf-8")
    elif not REPORT.exists() or REPORT.read_text(encoding="utf-8") != page:
        print(f"conformance: {REPORT.relative_to(ROOT)} is not what it found", file=sys.stderr)
        return 1
    passed = sum(one.passed for outcomes in results.values() for one in outcomes)
    print(f"conformance: {passed} checks pass", file=sys.stderr)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
