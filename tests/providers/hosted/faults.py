"""Faults that a stand-in of a service can be told to have."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response


@dataclass
class _Fault:
    pattern: str
    status: int
    left: int
    body: dict[str, Any]


class Faults:
    """Answers of a service that were ordered, and the requests that it was asked.

    Attributes:
        asked: Each request's method and path.
    """

    def __init__(self) -> None:
        self._ordered: list[_Fault] = []
        self._turn = threading.Lock()
        self.asked: list[str] = []

    def order(self, pattern: str, status: int, times: int = 1, **body: Any) -> None:
        """Have requests fail whose ``METHOD /path`` has `pattern` in it."""
        self._ordered.append(_Fault(pattern, status, times, body))

    def count(self, pattern: str) -> int:
        """How many requests there were with `pattern` in their ``METHOD /path``."""
        return sum(re.search(pattern, one) is not None for one in self.asked)

    def clear(self) -> None:
        """Have none from now on, and forget what was asked."""
        self._ordered.clear()
        self.asked.clear()

    def next(self, request: str) -> _Fault | None:
        """The fault that a request meets."""
        with self._turn:
            self.asked.append(request)
            for fault in self._ordered:
                if fault.left > 0 and re.search(fault.pattern, request):
                    fault.left -= 1
                    return fault
        return None

    async def middleware(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """For an application of Starlette's."""
        fault = self.next(f"{request.method} {request.url.path}")
        if fault is None:
            return await call_next(request)
        return JSONResponse(fault.body, fault.status)
