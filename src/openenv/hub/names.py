"""Names of Spaces: ``owner/name``, a revision, a web address."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from openenv._internal.addresses import hub_hosts, without_scheme
from openenv.settings import hub_endpoint

_SPACE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class SpaceReference(NamedTuple):
    """A Space and a revision.

    Attributes:
        repo_id: ``owner/name``.
        revision: A branch, a tag or a commit; None if none is named.
    """

    repo_id: str
    revision: str | None


def parse_space_reference(name: str) -> SpaceReference:
    """Parse ``owner/name``, ``owner/name@revision``, or a Space's address.

    Raises:
        ValueError: The text has none of these forms.
    """
    rest = without_scheme(name)
    for host in hub_hosts():
        rest = rest.removeprefix(host)
    rest, _, revision = rest.partition("@")
    owner, _, more = rest.removeprefix("spaces/").partition("/")
    short, _, more = more.partition("/")
    repo_id = f"{owner}/{short.removesuffix('.git')}"
    if "://" in rest or not _SPACE.fullmatch(repo_id):
        raise ValueError(
            f"{name!r} names no Space; expected owner/name or {hub_endpoint()}/spaces/owner/name"
        )
    branch = more.removeprefix("tree/") if more.startswith("tree/") else ""
    return SpaceReference(repo_id, revision or unquote(branch).strip("/") or None)


def full_space_name(told: str | None, name: str, user: Callable[[], str]) -> str:
    """Return the full name of a Space, ``owner/name``.

    Args:
        told: ``owner/name``, or a name under the user's own account; None for the environment's
            name.
        name: The environment's name.
        user: Asks the Hub for the user's name; called only if no owner is given.

    Raises:
        ValueError: The result is not a valid name.
    """
    short = name if told is None else told
    full = short if "/" in short else f"{user()}/{short}"
    if not _SPACE.fullmatch(full):
        raise ValueError(f"{short!r} is not a valid name of a Space")
    return full
