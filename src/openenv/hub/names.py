"""What a Space is called, by whoever names one: ``owner/name``, a revision of it, its address."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from openenv.settings import hub_endpoint

__all__ = ["Reference", "is_hub_address", "reference_of", "space_name"]

_HOSTS = ("huggingface.co/", "www.huggingface.co/", "hf.co/")
_SPACE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_address(url: str) -> bool:
    """The address is the Hub's: of huggingface.co, or of where HF_ENDPOINT says it is."""
    return f"{_bare(url)}/".startswith((*_HOSTS, f"{_bare(hub_endpoint())}/"))


def _bare(url: str) -> str:
    return re.sub(r"^https?://", "", url.strip()).rstrip("/")


class Reference(NamedTuple):
    """A Space, and which revision of it.

    Attributes:
        repo_id: ``owner/name``.
        revision: A branch, a tag or a commit; None where none is named.
    """

    repo_id: str
    revision: str | None


def reference_of(name: str) -> Reference:
    """Read ``owner/name``, or ``owner/name@revision``, or a Space's address.

    Raises:
        ValueError: It is none of them.
    """
    rest = _bare(name)
    for host in (*_HOSTS, f"{_bare(hub_endpoint())}/"):
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
    return Reference(repo_id, revision or unquote(branch).strip("/") or None)


def space_name(told: str | None, name: str, user: Callable[[], str]) -> str:
    """The full name of a Space, ``owner/name``.

    Args:
        told: ``owner/name``, or the name of one of the user's own; None is the environment's.
        name: What the environment is called.
        user: Asks the Hub who the user is; only called where nobody says the owner.

    Raises:
        ValueError: What is told is no name.
    """
    short = name if told is None else told
    full = short if "/" in short else f"{user()}/{short}"
    if not _SPACE.fullmatch(full):
        raise ValueError(f"{short!r} is no name of a Space")
    return full
