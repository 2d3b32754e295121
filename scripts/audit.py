"""Look up every locked dependency among the known vulnerabilities, with pip-audit.

Exits with 1 if a dependency is vulnerable. If the advisories cannot be reached, the output says how
many packages were not audited. That is an error with ``--strict`` (`make audit`), but not in
`make check`, which also runs on machines without network access.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
SERVICES = ("pypi", "osv")  # OSV knows packages that have no page on PyPI
TIMEOUT_S = 300


def looked_up(service: str, lock: Path) -> list[dict[str, Any]]:
    """Return a service's findings for each dependency, or an empty list if it does not answer."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"]
    command += ["--progress-spinner", "off", "--format", "json", "--timeout", "10"]
    command += ["--vulnerability-service", service, "--requirement", str(lock)]
    try:
        done = subprocess.run(  # nosec B603  # no shell
            command, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return _not_asked(service, f"no answer within {TIMEOUT_S:g} s")
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, LookupError):
        return _not_asked(service, (done.stderr.strip().splitlines() or ["no words"])[-1])
    return found


def _not_asked(service: str, why: str) -> list[dict[str, Any]]:
    print(f"audit: {service} cannot be asked: {why:.200}", file=sys.stderr)
    return []


def main() -> int:
    """Audit the lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--lock", type=Path, default=LOCK)
    arguments = parser.parse_args()
    known: dict[str, list[Any]] = {}
    unknown: set[str] = set()
    for service in SERVICES:
        for one in looked_up(service, arguments.lock):
            name = f"{one['name']} {one.get('version', '')}".strip()
            if "vulns" in one:
                known.setdefault(name, []).extend(one["vulns"])
            else:
                unknown.add(one["name"])
        unknown -= {name.partition(" ")[0] for name in known}
        if known and not unknown:
            break
    return report(known, unknown, strict=arguments.strict)


def report(known: dict[str, list[Any]], unknown: set[str], *, strict: bool) -> int:
    """Print the findings, and return the exit code."""
    vulnerable = {name: vulns for name, vulns in known.items() if vulns}
    for name, vulns in vulnerable.items():
        for vuln in vulns:
            fixed = ", ".join(vuln.get("fix_versions") or ()) or "no version yet"
            print(f"audit: {name}: {vuln['id']}, fixed in {fixed}")
    if unknown or not known:
        count = len(unknown) if unknown else "all"
        print(
            f"audit: NOT AUDITED: {count} packages, {len(known)} audited. The advisories could "
            "not be had; run `make audit` where pypi.org or api.osv.dev can be reached",
            file=sys.stderr,
        )
    else:
        print(f"audit: {len(known)} packages, {len(vulnerable)} vulnerable")
    return 1 if vulnerable or (strict and (unknown or not known)) else 0


if __name__ == "__main__":
    sys.exit(main())
