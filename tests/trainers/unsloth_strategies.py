"""Reward strategies as `examples/unsloth` does, with unsloth_zoo's own functions; see
`test_unsloth.py`.

    python unsloth_strategies.py RL_ENVIRONMENTS_FILE
    python unsloth_strategies.py RL_ENVIRONMENTS_FILE --train

Prints what came of it as JSON, and ends the servers that were started. With ``--train``, the whole
example runs for a step: `unsloth` itself, which needs a GPU, is then a module that has those
functions, and a `FastLanguageModel` which gives a tiny model of transformers, called as Unsloth's
notebooks call theirs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

from unsloth_play import module_of  # type: ignore[import-not-found]

EXAMPLES = Path(__file__).parents[2] / "examples"


def fenced(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"So:\n```python\ndef strategy(board, possible):\n{body}\n```"


REPLIES = {
    "first": fenced("return possible[0]"),
    "prose": "I would go left.",
    "broken": fenced("return ("),
    "impossible": fenced('return "left"'),
    "no_move": fenced("return 7"),
    "raises": fenced("return board[9]"),
    "opens": fenced('return open("/etc/passwd").read()'),
    "endless": fenced("while True: pass"),
    "catches": fenced(
        "while True:",
        "    try:",
        "        while True: pass",
        "    except BaseException:",
        "        pass",
    ),
    "last": fenced("return possible[-1]"),
}


def rewarded(unsloth: Any) -> dict[str, Any]:
    from strategies import Strategies  # type: ignore[import-not-found]

    strategies = Strategies(unsloth, limit_s=3.0)
    told = {name: strategies.worth(reply) for name, reply in REPLIES.items()}
    told["together"] = strategies.reward([[{"content": REPLIES["first"]}]] * 3)
    (child, _) = unsloth._OPENENV_CHILDREN.popitem()[1]
    child.kill()
    child.wait(10)
    told["on_another_server"] = strategies.worth(REPLIES["first"])

    def kill_soon() -> None:
        time.sleep(0.3)
        for child, _ in unsloth._OPENENV_CHILDREN.values():
            child.kill()

    killer = threading.Thread(target=kill_soon)
    killer.start()
    # 200 moves, each of which takes its time.
    slow = fenced("for _ in range(30000): pass", "return possible[0]")
    told["killed_meanwhile"] = strategies.worth(slow)
    killer.join()
    told["after_that"] = strategies.worth(REPLIES["first"])
    return told


def trained(unsloth: Any) -> dict[str, Any]:
    from strategies import PROMPT
    from tiny_models import CHATML, model_for, tokenizer_for

    tokenizer = tokenizer_for([PROMPT, CHATML], CHATML, 300)
    asked: list[str] = []

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(name: str, **options: Any) -> tuple[Any, Any]:
            asked.append(name)
            return model_for(tokenizer, hidden=32), tokenizer

        @staticmethod
        def get_peft_model(model: Any, **options: Any) -> Any:
            return model

    package = types.ModuleType("unsloth")
    vars(package).update(vars(unsloth), FastLanguageModel=FastLanguageModel)
    sys.modules["unsloth"] = package
    import game_2048  # type: ignore[import-not-found]

    logs: list[dict[str, Any]] = game_2048.main("tiny", steps=1, use_cpu=True, bf16=False)
    (reward,) = [one["reward"] for one in logs if "reward" in one]
    return {"asked": asked, "reward": reward}


if __name__ == "__main__":
    sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "unsloth")]
    unsloth = module_of(sys.argv[1])
    try:
        outcome = trained(unsloth) if "--train" in sys.argv else rewarded(unsloth)
    finally:
        for child, _ in unsloth._OPENENV_CHILDREN.values():
            child.kill()
            child.wait(10)
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
