"""An application, served in each of the ways that its sockets may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server.sockets import MAX_BYTES, WAYS, app_of
from support.servers import NotAdopted, serving


@pytest.fixture(scope="module", params=WAYS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    app: Any = app_of()
    if request.param == "asgi":
        app = NotAdopted(app)
    with serving(app, ws=WAYS[request.param], ws_max_size=MAX_BYTES) as url:
        yield url
