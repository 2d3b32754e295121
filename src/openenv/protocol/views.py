"""Views of an episode for a web page, beside the observation: the request ``view``.

An environment may define up to three methods for them, each of which may be a coroutine function:

    render_web(observation) -> str | None         HTML; a page shows it in a sandbox
    web_actions(observation) -> [(label, action)] moves to choose from
    message_to_action(message) -> action          for a message that a person writes in a chat

The observation is a dict of its fields, with ``reward`` and ``done``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from openenv.errors import InvalidReturnError

RENDER_WEB, WEB_ACTIONS, MESSAGE_TO_ACTION = "render_web", "web_actions", "message_to_action"


def checked_view(returned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of an environment's view methods as the data of an answer.

    Returns:
        ``html``, text or None; ``moves``, a list of ``label`` and ``action``; and ``action``, the
        action for the message, or None.

    Raises:
        InvalidReturnError: A method returned a value of the wrong type.
    """
    html = returned.get(RENDER_WEB)
    if html is not None and not isinstance(html, str):
        raise InvalidReturnError(f"{RENDER_WEB} returned {type(html).__name__}; it must return str")
    moves = returned.get(WEB_ACTIONS) or ()
    if isinstance(moves, str | bytes | Mapping | BaseModel):
        raise _invalid_moves(moves)
    try:
        listed = list(moves)
    except TypeError:
        raise _invalid_moves(moves) from None
    checked = [_checked_move(move) for move in listed]
    return {"html": html, "moves": checked, "action": returned.get(MESSAGE_TO_ACTION)}


def _checked_move(move: Any) -> dict[str, Any]:
    is_pair = isinstance(move, tuple | list) and len(move) == 2 and isinstance(move[0], str)
    if not is_pair or not isinstance(move[1], Mapping | BaseModel):
        raise _invalid_moves(move)
    return {"label": move[0], "action": move[1]}


def _invalid_moves(found: Any) -> InvalidReturnError:
    return InvalidReturnError(
        f"{WEB_ACTIONS} returned {found!r:.200}; it must return pairs of a label and an action"
    )
