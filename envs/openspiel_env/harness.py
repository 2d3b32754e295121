"""OpenSpiel games as sessions of `openenv.rollouts.harness`, to collect episodes of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openenv.rollouts.harness import ResourceSessionFactory, StepEnvSessionAdapter, ToolResult
from openenv.tools.types import Tool
from openenv.types import StepResult

from .models import OpenSpielAction, OpenSpielObservation

__all__ = ["OpenSpielSessionFactory", "render_tic_tac_toe_board"]

TIC_TAC_TOE = "tic_tac_toe"
ACTION_ID = {"type": "integer", "description": "One of the legal_actions that were shown last."}
PLAY_MOVE = Tool(
    name="play_move",
    description="Make a move, by its action_id, which must be one of legal_actions.",
    input_schema={
        "type": "object",
        "properties": {"action_id": ACTION_ID},
        "required": ["action_id"],
    },
)


def render_tic_tac_toe_board(info_state: Sequence[float]) -> str:
    """Draw a board: X, O, and in each empty cell the action that plays there.

    Args:
        info_state: OpenSpiel's tensor: nine numbers for each of empty, O and X.

    Returns:
        Three lines, or an empty text if the tensor is not a tic-tac-toe board.
    """
    if len(info_state) != 27:
        return ""
    cells = [
        "X" if info_state[18 + cell] else "O" if info_state[9 + cell] else str(cell)
        for cell in range(9)
    ]
    return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))


class OpenSpielSessionFactory(ResourceSessionFactory[StepEnvSessionAdapter]):
    """A factory of sessions in which a model plays a game by the tool ``play_move``.

    Args:
        client_factory: Makes a client for each session. The session closes its client.
        game_name: The game that the server plays.
    """

    def __init__(self, client_factory: Callable[[], Any], *, game_name: str = TIC_TAC_TOE) -> None:
        self._client_factory = client_factory
        self._game_name = game_name

    def create(
        self, task: Any = None, seed: int | None = None, episode_id: str | None = None
    ) -> StepEnvSessionAdapter:
        """Start a session with a new episode."""
        return StepEnvSessionAdapter(
            self._client_factory(),
            task=task,
            seed=seed,
            episode_id=episode_id,
            tool_specs=[PLAY_MOVE],
            action_builder=self._make_action,
            initial_messages_builder=self._messages,
            tool_result_builder=self._result,
        )

    def _make_action(self, name: str, arguments: dict[str, Any]) -> OpenSpielAction:
        return OpenSpielAction(action_id=int(arguments["action_id"]), game_name=self._game_name)

    def _messages(self, result: StepResult[Any], task: Any) -> list[dict[str, Any]]:
        seen: OpenSpielObservation = result.observation
        lines = [
            f"You play {self._game_name}. Make your moves by calling play_move.",
            f"Legal actions: {seen.legal_actions}",
        ]
        if board := self._board(seen):
            lines += ["", "Board:", board]
        return [{"role": "user", "content": "\n".join(lines)}]

    def _result(
        self, name: str, arguments: dict[str, Any], result: StepResult[Any], state: Any
    ) -> ToolResult:
        seen: OpenSpielObservation = result.observation
        data = {
            "action_id": arguments.get("action_id"),
            "legal_actions": seen.legal_actions,
            "reward": result.reward,
            "done": result.done,
            "current_player_id": seen.current_player_id,
        }
        if board := self._board(seen):
            data["board"] = board
        kept = state.model_dump() if hasattr(state, "model_dump") else state
        metadata = {"reward": result.reward, "state": kept}
        return ToolResult(data=data, done=result.done, metadata=metadata)

    def _board(self, seen: OpenSpielObservation) -> str:
        is_drawn = self._game_name == TIC_TAC_TOE
        return render_tic_tac_toe_board(seen.info_state) if is_drawn else ""
