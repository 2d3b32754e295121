"""Write rows of a data set for NeMo Gym: ``python rows.py blackjack 64 > train.jsonl``."""

from __future__ import annotations

import asyncio
import json
import sys

from openenv.integrations.nemo_gym import dataset


def main(environment: str, count: str) -> None:
    """Write the given number of rows, each an episode with its own seed."""
    for row in asyncio.run(dataset(environment, num_rows=int(count))):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
