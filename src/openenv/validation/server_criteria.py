"""Inspection of a running server: checks for the routes that every client needs.

The identifiers, the keys of the report and the exit codes are those of the public package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openenv._internal.addresses import over_http
from openenv.validation.evidence import FetchedPage
from openenv.validation.wire import fetch_page

SIMULATION: tuple[str, ...] = ("/reset", "/step", "/state")
UNKNOWN = "unknown"
PROFILE = "openenv-http"
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Criterion:
    """A requirement of a server, and the result."""

    id: str
    description: str  # the requirement in words
    passed: bool  # true if the requirement is met
    expected: Mapping[str, Any]
    actual: Mapping[str, Any] | None = None  # the actual content; None if there was no answer
    # Why the requirement is not met, unless `expected` and `actual` show the reason.
    details: str | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the criterion as JSON data."""
        data: dict[str, Any] = {
            "id": self.id,
            "description": self.description,
            "passed": self.passed,
            "required": True,
        }
        if self.details is not None:
            data["details"] = self.details
        data["expected"] = dict(self.expected)
        if self.actual is not None:
            data["actual"] = dict(self.actual)
        return data


@dataclass(frozen=True)
class ServerReport:
    """The result of inspecting a server."""

    target: str  # the server's address
    version: str  # the protocol version that the server states; ``unknown`` if none
    mode: str  # ``simulation`` if the server has ``/reset``, else ``production`` or ``unknown``
    criteria: tuple[Criterion, ...]

    @property
    def profile(self) -> str:
        """The profile of the version: ``openenv-http/1.x`` or ``openenv-http/unknown``."""
        return f"{PROFILE}/{'1.x' if self.version.startswith('1.') else UNKNOWN}"

    @property
    def passed(self) -> bool:
        """True if all requirements are met."""
        return all(one.passed for one in self.criteria)

    def as_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        passed = sum(one.passed for one in self.criteria)
        return {
            "target": self.target,
            "validation_type": "running_environment",
            "standard_version": self.version,
            "standard_profile": self.profile,
            "mode": self.mode,
            "passed": self.passed,
            "summary": {
                "passed_count": passed,
                "total_count": len(self.criteria),
                "failed_criteria": [one.id for one in self.criteria if not one.passed],
                "required_passed_count": passed,
                "required_total_count": len(self.criteria),
            },
            "criteria": [one.as_data() for one in self.criteria],
        }


def inspect_server(url: str, *, timeout_s: float = TIMEOUT_S) -> ServerReport:
    """Inspect a running server. Missing answers are reported instead of raised."""
    target = over_http(url)
    pages = {
        route: fetch_page(target, f"/{route}", {} if route == "mcp" else None, timeout_s=timeout_s)
        for route in ("openapi.json", "health", "metadata", "schema", "mcp")
    }
    document = pages["openapi.json"]
    info = document.object.get("info")
    version = info.get("version") if isinstance(info, dict) else None
    if not isinstance(version, str):
        version = ""
    paths = document.object.get("paths") if version else None
    mode = detect_mode(paths)
    criteria = (*_criteria(pages, version), _consistency(mode, paths))
    return ServerReport(target, version or UNKNOWN, mode, criteria)


def detect_mode(paths: Any) -> str:
    """Return the mode of a server from the paths in its OpenAPI document, or "unknown"."""
    if not isinstance(paths, dict):
        return UNKNOWN
    return "simulation" if "/reset" in paths else "production"


def _criterion(
    id: str,
    description: str,
    page: FetchedPage,
    passed: bool,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    details: str | None = None,
) -> Criterion:
    wanted = {"status_code": 200, **expected}
    if page.status is None:
        return Criterion(id, description, False, wanted, details=f"no answer: {page.failure}")
    found = {"status_code": page.status, **actual}
    is_met = passed and page.status == 200
    return Criterion(id, description, is_met, wanted, found, None if is_met else details)


def _criteria(pages: Mapping[str, FetchedPage], version: str) -> Iterator[Criterion]:
    # The JSON objects in the answers, regardless of the status.
    read = {
        route: page.json if isinstance(page.json, dict) else {} for route, page in pages.items()
    }
    document = pages["openapi.json"]
    yield _criterion(
        "openapi_version_available",
        "/openapi.json says which version of the protocol the server speaks",
        document,
        bool(version),
        {"info.version": "string"},
        {"info.version": version} if version else {"body_type": type(document.json).__name__},
        "there is no info.version in it",
    )
    status = read["health"].get("status")
    yield _criterion(
        "health_endpoint",
        "/health says that the server is healthy",
        pages["health"],
        status == "healthy",
        {"status": "healthy"},
        {"status": status},
    )
    told = {name: read["metadata"].get(name) for name in ("name", "description")}
    yield _criterion(
        "metadata_endpoint",
        "/metadata says what the environment is called, and what it is",
        pages["metadata"],
        all(isinstance(value, str) for value in told.values()),
        {"fields": list(told)},
        told,
    )
    names = ("action", "observation", "state")
    has = {name: isinstance(read["schema"].get(name), dict) for name in names}
    yield _criterion(
        "schema_endpoint",
        "/schema tells the forms of actions, observations and the state",
        pages["schema"],
        all(has.values()),
        {"fields": list(names)},
        {f"has_{name}": value for name, value in has.items()},
    )
    rpc = read["mcp"].get("jsonrpc")
    yield _criterion(
        "mcp_endpoint",
        "/mcp answers a POST by JSON-RPC",
        pages["mcp"],
        rpc == "2.0",
        {"jsonrpc": "2.0"},
        {"jsonrpc": rpc},
    )


def _consistency(mode: str, paths: Any) -> Criterion:
    id, description = "mode_endpoint_consistency", "the routes fit together to one mode"
    if mode == UNKNOWN:
        return Criterion(
            id,
            description,
            False,
            {"openapi.paths": "present"},
            {"openapi.paths": "missing"},
            "/openapi.json lists no routes, so nothing says which mode it is",
        )
    expected = dict.fromkeys(SIMULATION, mode == "simulation")
    actual = {route: route in paths for route in SIMULATION}
    return Criterion(id, description, actual == expected, expected, actual)
