"""Makes a tiny model that plays blackjack by its tool, for the notebook that trains one.

python tutorial_model.py FOLDER
"""

from __future__ import annotations

import sys

from trainers import trl_play

from openenv.integrations.trl import environment_factory

trl_play.PROMPT = "Play a hand of blackjack by the tool."


def main(folder: str) -> None:
    calls = [trl_play.call("blackjack", action=move) for move in ("hit", "stand")]
    model, tokenizer = trl_play.speaker((environment_factory("blackjack"), calls))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
