"""A program that computes indicators by stockstats, which FinRL's preprocessing uses.

`python indicators_of_stockstats.py` reads a JSON object from its standard input: `stocks`, a list
of objects with `high`, `low` and `close`; and `names`. It prints the values of each indicator for
each stock. It does not need OpenEnv.
"""

# mypy: ignore-errors
# pyright: reportMissingImports=false

import json
import sys

import pandas as pd
from stockstats import StockDataFrame


def main():
    wanted = json.load(sys.stdin)
    computed = []
    for prices in wanted["stocks"]:
        frame = StockDataFrame.retype(pd.DataFrame(prices))
        computed.append({name: [float(value) for value in frame[name]] for name in wanted["names"]})
    print(json.dumps(computed))  # noqa: T201


if __name__ == "__main__":
    main()
