"""Views of an episode for a page, beside the observation: the request ``view``.

An environment may say so by three methods, each of which it may leave out, and which may be
coroutines:

    render_web(observation) -> str | None         HTML; a page shows it in a sandbox
    web_actions(observation) -> [(label, action)] moves to choose from
    message_to_action(message) -> action          of what a person writes in a chat

The observation is a dict of its fields, with ``reward`` and ``done``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from openenv.errors import InvalidReturnError

RENDER_WEB, WEB_ACTIONS, MESSAGE_TO_ACTION = "render_web", "web_actions", "message_to_action"


def checked_view(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of an environment's methods, by name, as data of an answer.

    Returns:
        ``html``, text or None; ``moves``, a list of ``label`` and ``action``; and ``action``, of
        the message, or None.

    Raises:
        InvalidReturnError: One has returned what it may not.
    """
    html = said.get(RENDER_WEB)
    if html is not None and not isinstance(html, str):
        raise InvalidReturnError(f"{RENDER_WEB} returned {type(html).__name__}; it must return str")
    moves = said.get(WEB_ACTIONS) or ()
    return {
        "html": html,
        "moves": [_move(one) for one in _listed(moves)],
        "action": said.get(MESSAGE_TO_ACTION),
    }


def _listed(moves: Any) -> list[Any]:
    if isinstance(moves, str | bytes | Mapping | BaseModel):
        raise _no_moves(moves)
    try:
        return list(moves)
    except TypeError:
        raise _no_moves(moves) from None


def _move(one: Any) -> dict[str, Any]:
    if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str):
        raise _no_moves(one)
    label, action = one
    if not isinstance(action, Mapping | BaseModel):
        raise _no_moves(one)
    return {"label": label, "action": action}


def _no_moves(found: Any) -> InvalidReturnError:
    return InvalidReturnError(
        f"{WEB_ACTIONS} returned {found!r:.200}; it must return pairs of a label and an action"
    )
