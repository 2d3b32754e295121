"""CartPole, stepped in batches for some seconds: EnvPool, Gymnasium, and ours over a socket.

`how` in the order is `envpool`, `gymnasium`, `vector` (our `VectorEnv`) or `gymnasium-vector` (our
`GymnasiumVectorEnv`). The first two run by the Python of their own virtual environment.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from playing import Meter, Order, tell  # type: ignore[import-not-found]

NAME = "CartPole-v1"
WARM_UP_BATCHES = 50
ACTIONS = 256  # batches of actions, drawn in advance
BATCHES_AT_ONCE = 8


def made(order: Order) -> Any:
    if order.how == "envpool":
        import envpool  # type: ignore[import-not-found]

        return envpool.make_gymnasium(NAME, num_envs=order.sessions, seed=0)
    if order.how == "gymnasium":
        import gymnasium

        return gymnasium.make_vec(NAME, num_envs=order.sessions, vectorization_mode="async")
    if order.how == "vector":
        from openenv import VectorEnv

        return VectorEnv(order.url, order.sessions)
    from openenv.integrations.gymnasium import GymnasiumVectorEnv

    return GymnasiumVectorEnv(order.url, order.sessions)


def main() -> None:
    order = Order.given()
    envs = made(order)
    drawn = np.random.default_rng(0).integers(2, size=(ACTIONS, order.sessions))
    actions = [{"action": batch} if order.how == "vector" else batch for batch in drawn]
    envs.reset()
    for batch in actions[:WARM_UP_BATCHES]:
        envs.step(batch)
    meter, batches = Meter(order.server), 0
    until = time.perf_counter() + order.seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(BATCHES_AT_ONCE):
            found = envs.step(actions[batches % ACTIONS])
            batches += 1
        meter.waits.append((time.perf_counter() - began) / BATCHES_AT_ONCE)
        # An environment that has ended is reset by its next step, without a reward.
        assert set(np.asarray(found[1], float).tolist()) <= {0.0, 1.0}, found[1]
        assert len(found[1]) == order.sessions
    tell(meter.result(batches * order.sessions, 0, ends_all=False))
    envs.close()


if __name__ == "__main__":
    main()
