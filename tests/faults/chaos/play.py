"""Episodes over a network in which things go wrong, at random, from a seed; by either package.

`python play.py --url URL --count 1000 --seed 1 [--players 24]` prints one JSON object: how the
schedules ended, and examples of those that did not go right.

A player does what a trainer does: it steps, and tries again what was not answered in time. A
schedule ends well if every observation is that of the step it was asked for, of one and the same
instance, each step was taken exactly once, and nothing was raised. It ends loudly if the client
raised an error that says so. It ends silently if neither is so: the trainer would go on with a
wrong episode.
"""

import argparse
import asyncio
import collections
import concurrent.futures
import json
import random
import sys
import threading
import time
import traceback
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the relay, which needs nothing else

from support.relay import Relay

STEPS = 10
LIMIT_S = 0.4  # that the client waits for an answer
TIMES_OUT = (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)

# ------------------------------------------------------------------ what can happen around a step


def nothing(relay, chance):
    """It is quick."""
    return {}


def slow(relay, chance):
    """It takes a moment."""
    return {"sleep_s": chance.uniform(0.0, 0.03)}


def cut_before(relay, chance):
    """The connection was cut while the policy thought."""
    relay.cut()
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0.0, 0.05))
    return {}


def cut_during(relay, chance):
    """The connection is cut while the step is taken, or asked for, or answered."""
    later(chance.uniform(0.0, 0.04), relay.cut)
    return {"sleep_s": chance.choice([0.0, 0.02])}


def cut_again_and_again(relay, chance):
    """So are the next ones."""
    for number in range(1, 4):
        later(number * chance.uniform(0.005, 0.02), relay.cut)
    return {"sleep_s": 0.02}


def reply_is_lost(relay, chance):
    """The step is taken, and its answer is not delivered; then the connection breaks."""
    relay.hold()
    later(chance.uniform(0.02, LIMIT_S + 0.1), relay.cut_and_release)
    return {}


def request_is_lost(relay, chance):
    """The request is not delivered; then the connection breaks."""
    relay.hold(upwards=True)
    later(chance.uniform(0.02, LIMIT_S + 0.1), relay.cut_and_release)
    return {}


def stalls(relay, chance):
    """The network stalls for longer than the client waits, and goes on."""
    relay.hold(upwards=chance.random() < 0.5)
    later(LIMIT_S + chance.uniform(0.02, 0.2), relay.release)
    return {}


def half_open(relay, chance):
    """The client's end breaks; the server's end looks as if nothing had happened."""
    later(chance.uniform(0.0, 0.02), relay.cut_near)
    return {"sleep_s": chance.choice([0.0, 0.02])}


def away(relay, chance):
    """The proxy restarts: it is not there for a while."""
    relay.refuse()
    relay.cut()
    later(chance.uniform(0.02, 0.3), relay.accept_again)
    return {}


def too_slow(relay, chance):
    """The step takes longer than the client waits: it gives up, and asks again."""
    return {"sleep_s": LIMIT_S + chance.uniform(0.05, 0.2)}


FAULTS = [
    cut_before,
    cut_during,
    cut_again_and_again,
    reply_is_lost,
    request_is_lost,
    stalls,
    half_open,
    away,
    too_slow,
]


def later(delay_s, call):
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()


# ------------------------------------------------------------------ a player


class Wrong(Exception):
    """An observation is not that of the step that was asked for."""


def observed(result):
    seen = result.observation
    return seen if isinstance(seen, dict) else vars(seen)


def play(client, url, chance, happened):
    """Play an episode; gives the instance that it was played with."""
    relay = Relay(url)
    try:
        with client(base_url=relay.url, message_timeout_s=LIMIT_S).sync() as env:
            first = observed(again(lambda: env.reset()))
            for number in range(STEPS):
                event = chance.choice(FAULTS) if chance.random() < 0.3 else nothing
                if event is not nothing:
                    happened.append(event.__name__)
                entry = {"number": number, **event(relay, chance)}
                seen = observed(again(lambda entry=entry: env.step(entry)))
                expected = {
                    "instance": first["instance"],
                    "count": number + 1,
                    "number": number,
                    "was_reset": True,
                }
                wrong = {name: seen[name] for name in expected if seen[name] != expected[name]}
                if wrong:
                    raise Wrong(f"step {number}: {wrong}")
            return first["instance"]
    finally:
        relay.close()


def again(call):
    """Try again what was not answered in time, as trainers do."""
    for _ in range(20):
        try:
            return call()
        except TIMES_OUT:
            pass
    return call()


def schedule(client, url, seed):
    happened = []
    try:
        instance = play(client, url, random.Random(seed), happened)
        executed = taken(url, instance)
        if executed != list(range(STEPS)):
            return "silent", happened, f"the steps taken were {executed}"
        return "right", happened, ""
    except Wrong as wrong:
        return "silent", happened, str(wrong)
    except Exception as error:
        return "loud", happened, traceback.format_exception_only(type(error), error)[-1].strip()


def taken(url, instance):
    with urllib.request.urlopen(f"{url}/executed/{instance}", timeout=30) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--players", type=int, default=24)
    arguments = parser.parse_args()
    from openenv.core.generic_client import GenericEnvClient

    seeds = [f"{arguments.seed}:{number}" for number in range(arguments.count)]
    with concurrent.futures.ThreadPoolExecutor(arguments.players) as pool:
        ends = list(pool.map(lambda s: schedule(GenericEnvClient, arguments.url, s), seeds))
    outcomes = collections.Counter(end for end, _, _ in ends)
    happened = collections.Counter(event for _, events, _ in ends for event in events)
    bad = [(s, *end) for s, end in zip(seeds, ends, strict=True) if end[0] != "right"]
    report = {
        "schedules": arguments.count,
        **{end: outcomes[end] for end in ("right", "loud", "silent")},
        "faults": dict(happened),
        "examples": [list(map(str, one)) for one in bad[:40]],
    }
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    main()
