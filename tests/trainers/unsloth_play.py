"""Do what Unsloth's notebook of 2048 does, by unsloth_zoo's own functions; see `test_unsloth.py`.

    python unsloth_play.py RL_ENVIRONMENTS_FILE WORKING_DIRECTORY

Prints what came of it as JSON, and ends the servers that were started.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LAUNCH: Callable[..., Any]
CLIENT: Any = None
PORT = 9000


def module_of(file: str) -> Any:
    """The module of a file, without the package around it, which needs a GPU to be imported."""
    spec = importlib.util.spec_from_file_location("rl_environments", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def play(strategy: Callable[[Any], int], result: Any = None) -> tuple[int, float, bool]:
    """Go on from a result, or begin; each move makes sure of the server, as in the notebook."""
    from envs.openspiel_env import OpenSpielAction

    global PORT, CLIENT
    result = result or CLIENT.reset()
    steps, total = 0, 0.0
    while steps < 20 and not result.observation.done:
        PORT, CLIENT = LAUNCH(PORT, CLIENT)
        result = CLIENT.step(OpenSpielAction(action_id=strategy(result), game_name="2048"))
        steps += 1
        total += result.observation.reward or 0.0
    return steps, total, result.observation.done


def legal(result: Any) -> int:
    return int(result.observation.legal_actions[0])


def illegal(result: Any) -> int:
    return 99


def refusal(call: Callable[[], Any]) -> str:
    try:
        return f"no error: {call()}"
    except Exception as error:
        return str(error)


def main(file: str, working_directory: str) -> dict[str, Any]:
    unsloth = module_of(file)
    sys.path[:0] = [working_directory, str(Path(working_directory) / "src")]
    from envs.openspiel_env import OpenSpielEnv

    global LAUNCH, PORT, CLIENT
    LAUNCH = partial(
        unsloth.launch_openenv,
        working_directory=working_directory,
        server="envs.openspiel_env.server.app:app",
        environment={
            **os.environ,
            "OPENSPIEL_GAME": "2048",
            "OPENSPIEL_AGENT_PLAYER": "0",
            "OPENSPIEL_OPPONENT_POLICY": "random",
        },
        openenv_class=OpenSpielEnv,
    )
    here = unsloth.execute_with_time_limit(20, backend="signal")(play)
    forked = unsloth.execute_with_time_limit(20, backend="process")(play)
    try:
        PORT, CLIENT = LAUNCH(PORT, CLIENT)
        again = LAUNCH(PORT, CLIENT)
        first = CLIENT.reset()
        told = {
            "same": again == (PORT, CLIENT),
            "first": [first.observation.done, first.observation.reward, first.reward],
            "board": len(first.observation.info_state),
            "played": here(legal, first),
            "illegal": refusal(lambda: here(illegal, CLIENT.reset())),
            "after": here(legal, CLIENT.reset())[0],
            "forked": forked(legal)[0],
            "forked_in_the_middle": refusal(lambda: forked(legal, CLIENT.reset())),
            "after_forks": here(legal, CLIENT.reset())[0],
        }
        CLIENT.close()
    finally:
        for child, _ in unsloth._OPENENV_CHILDREN.values():
            child.terminate()
            child.wait(10)
    return told


if __name__ == "__main__":
    outcome = main(*sys.argv[1:])
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
