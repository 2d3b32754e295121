# mypy: ignore-errors
"""Rubrics as users of the public package wrote them; it prints what came of them, as JSON."""

import asyncio
import json
import sys
import warnings
from dataclasses import dataclass, field

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.llm_client import LLMClient
from openenv.core.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    LLMJudge,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)
from openenv.core.rubrics.base import Rubric as BaseRubric
from openenv.core.rubrics.containers import Gate as SameGate
from openenv.core.rubrics.llm_judge import LLMJudge as SameJudge
from openenv.core.rubrics.trajectory import TrajectoryRubric as SameTrajectoryRubric

warnings.simplefilter("ignore")  # of coroutines that nobody awaits, on the faults below


class Matches(Rubric):
    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted

    def forward(self, action, observation) -> float:
        return 1.0 if action == self.wanted else 0.0


class Short(Rubric):
    def forward(self, action, observation) -> float:
        return 1.0 / len(action)


class Remote(Rubric):
    def __init__(self, score):
        super().__init__()
        self.score = score

    async def forward(self, action, observation) -> float:
        await asyncio.sleep(0)
        return self.score


class Answer(Rubric):
    """A rubric of the user's own, with children and its own forward."""

    def __init__(self):
        super().__init__()
        self.right = Matches("four")
        self.style = WeightedSum([Short(), Gate(Short(), threshold=0.5)], weights=[0.25, 0.75])
        self.games = RubricDict({"pong": Matches("up"), "chess": Matches("e4")})

    def forward(self, action, observation) -> float:
        total = self.right(action, observation) * 0.5 + self.style(action, observation) * 0.5
        return total + self.games[observation.game](action, observation)


class AsyncAnswer(Rubric):
    def __init__(self):
        super().__init__()
        self.parts = RubricList([Remote(0.5), Remote(0.25)])
        self.check = Matches("four")

    async def forward(self, action, observation) -> float:
        scores = [await part(action, observation) for part in self.parts]
        return sum(scores) * self.check(action, observation)


@dataclass
class Seen:
    done: bool = False
    game: str = "chess"
    metadata: dict = field(default_factory=dict)


class WinLoss(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        if not trajectory:
            return 0.0
        return {"win": 1.0, "loss": -1.0}.get(trajectory[-1][1].metadata.get("outcome"), 0.0)


class EqualCredit(TrajectoryRubric):
    def score_trajectory(self, trajectory):
        return 0.25 * len(trajectory)

    def compute_step_rewards(self):
        return [self.score_trajectory(self._trajectory)] * len(self._trajectory)


class FakeClient(LLMClient):
    def __init__(self, *replies):
        super().__init__("http://localhost", 8000)
        self.replies = list(replies)
        self.prompts = []

    async def complete(self, prompt, **kwargs):
        self.prompts.append(prompt)
        return self.replies.pop(0)


def shown(call, *given):
    try:
        value = call(*given)
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return value.__name__ if asyncio.iscoroutine(value) and not value.close() else value


def names(rubric):
    return [(path, type(found).__name__) for path, found in rubric.named_rubrics()]


# ------------------------------------------------------------------ what works in both


def nested():
    rubric, seen = Answer(), Seen()
    scores = [rubric(action, seen) for action in ("four", "up", "e4", "a")]
    return {
        "scores": scores,
        "last": [(path, found.last_score) for path, found in rubric.named_rubrics()],
        "names": names(rubric),
        "below": len(list(rubric.rubrics())),
        "children": [type(child).__name__ for child in rubric.children()],
        "found": rubric.get_rubric("style.rubric_1.rubric") is rubric.style.rubric_1.rubric,
        "missing": shown(rubric.get_rubric, "style.nothing"),
        "attribute": rubric.games.pong is rubric.games["pong"],
        "state": rubric.state_dict(),
    }


def containers():
    listed, named = RubricList([Short()]), RubricDict()
    listed.append(Matches("a"))
    listed.extend([Short(), Short()])
    named["b"] = Short()
    named.update({"c": Matches("c")})
    weighted = WeightedSum([Matches("a"), Short()], [0.9, 0.1])
    return {
        "sequences": [
            Sequential(*rubrics)("ab", None)
            for rubrics in ([], [Short()], [Matches("ab"), Short()], [Matches("x"), Short()])
        ],
        "gates": [Gate(Short(), t)("ab", None) for t in (0.0, 0.5, 0.6)] + [Gate(Short())("a", 0)],
        "sum": [weighted("a", None), weighted("ab", None), weighted.weights],
        "refused": [
            shown(WeightedSum, [Short()], [0.5]),
            shown(WeightedSum, [Short()], [0.5, 0.5]),
            shown(RubricList([Short()]), "a", None),
            shown(RubricDict({"a": Short()}), "a", None),
        ],
        "list": [len(listed), type(listed[1]).__name__, [type(one).__name__ for one in listed]],
        "dict": [len(named), list(named), sorted(named.keys()), "b" in named, "x" in named],
        "items": [(key, type(one).__name__) for key, one in named.items()],
        "values": [type(one).__name__ for one in named.values()],
        "names": [names(one) for one in (listed, named, Sequential(Gate(Short()), weighted))],
    }


def hooks():
    called = []
    rubric = Gate(Sequential(Matches("a"), Short()), threshold=0.5)
    rubric.register_forward_pre_hook(lambda r, a, o: called.append(["pre", type(r).__name__, a, o]))
    for path, inner in rubric.named_rubrics():
        inner.register_forward_hook(lambda r, a, o, s, path=path: called.append([path, s]))
    rubric.register_forward_hook(lambda r, a, o, score: called.append(["post", score]))
    return [rubric("a", "seen"), rubric("b", "seen"), called]


async def asynchronous():
    called = []

    async def before(rubric, action, observation):
        called.append(["pre", action])

    async def after(rubric, action, observation, score):
        called.append(["post", score, rubric.last_score])

    rubric = AsyncAnswer()
    rubric.register_forward_pre_hook(before)
    rubric.register_forward_hook(after)
    mixed = Sequential(Matches("four"), Remote(0.5), Short(), Remote(0.75))
    weighted = WeightedSum([mixed, Gate(Remote(0.5)), Short()], [0.5, 0.25, 0.25])
    return {
        "own": [await rubric("four", None), await rubric("five", None), rubric.last_score],
        "hooks": called,
        "mixed": [await mixed("four", None), await weighted("four", None)],
        "empty": await Sequential()("a", None),
        "plain children": await Sequential(Short(), Short())("ab", None),
        "plain in a gate": await Gate(Sequential(Short()), 0.1)("ab", None),
        "plain": [Short()("ab", None), WeightedSum([Short()], [1.0])("ab", None)],
    }


def trajectories():
    rubric, equal = WinLoss(gamma=0.5, intermediate_reward=0.125), EqualCredit()
    seen = [Seen(), Seen(), Seen(done=True, metadata={"outcome": "win"})]
    scores = [[one("move", each) for each in seen] for one in (rubric, equal)]
    told = [rubric.compute_step_rewards(), equal.compute_step_rewards(), len(rubric.trajectory)]
    state = rubric.state_dict()
    rubric.reset()
    other = WinLoss()
    other.load_state_dict(state)
    return {
        "scores": scores,
        "told": told,
        "after": [rubric.trajectory, rubric.compute_step_rewards(), rubric("m", object())],
        "state": [state, other.gamma, other.intermediate_reward, equal.state_dict()],
        "refused": [shown(WinLoss, 1.5), shown(WinLoss, -0.1), shown(TrajectoryRubric)],
    }


async def judged():
    client = FakeClient("Score: 0.75", "0.5", "points: 7", "points: 7", "{0.25}")
    template = "Rate {action!r} for {observation.game}: {{0 to 1}}"
    judge = LLMJudge(template, client)
    pattern = LLMJudge("{action}{observation}", client, score_pattern=r"points: (\d+)")
    raw = LLMJudge("x", client, score_pattern=r"points: (\d+)", normalize=False)
    weighted = WeightedSum([judge, Short()], [0.5, 0.5])
    scores = [await judge("a", Seen()), await weighted("ab", Seen())]
    scores += [await pattern("{a}", "{o}"), await raw(0, 0), await Gate(judge, 0.2)("a", Seen())]
    other = LLMJudge("y", client, default_score=0.5)
    other.load_state_dict(pattern.state_dict() | {"normalize": False, "default_score": 0.25})
    return {
        "scores": scores,
        "prompts": client.prompts,
        "keys": sorted(judge.state_dict()),
        "loaded": other.state_dict(),
    }


class Env(Environment):
    def reset(self, seed=None, episode_id=None, **kwargs):
        self._reset_rubric()
        return Observation()

    def step(self, action, timeout_s=None, **kwargs):
        seen = Observation(done=action.metadata.get("last", False))
        seen.reward = self._apply_rubric(action, seen)
        return seen

    async def step_async(self, action, timeout_s=None, **kwargs):
        seen = Observation()
        seen.reward = await self._apply_rubric_async(action, seen)
        return seen

    @property
    def state(self):
        return State()


class Constant(Rubric):
    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, action, observation):
        return self.score


def in_an_environment():
    env = Env(rubric=EqualCredit(intermediate_reward=0.1))
    env.reset()
    actions = [Action(), Action(metadata={"last": True})]
    rewards = [env.step(action).reward for action in actions]
    env.reset()
    rewards += [env.step(action).reward for action in actions]
    later = Env(rubric=Gate(Remote(0.5), 0.25))
    return [rewards, asyncio.run(later.step_async(Action())).reward, Env().step(Action()).reward]


# ------------------------------------------------------------------ faults of the public package


async def on_a_loop():
    rubrics = [Sequential(Constant(0.5)), Sequential(Constant(0.0)), Gate(Sequential(Constant(1)))]
    return [isinstance(shown(rubric, "a", None), float) for rubric in rubrics]


def reset_is_recursive():
    inner = EqualCredit()
    rubric = Sequential(Constant(1.0), inner)
    rubric("a", Seen())
    rubric.reset()
    return len(inner.trajectory)


def names_overwrite_nothing():
    rubric = RubricDict({"reset": Constant(1.0)})
    return shown(rubric.reset)


def not_a_number_is_no_score():
    nan = Constant(float("nan"))
    return [shown(Gate(nan), 0, 0), shown(Sequential(nan, Constant(1.0)), 0, 0)]


def what_replaces_a_child():
    rubric = Answer()
    rubric.right = None
    return [name for name, _ in rubric.named_children()]


def judges():
    replies = ["on a scale of 10, 7", "-0.5", "7/10", ".5", "no idea"]
    found = []
    for reply in replies:
        judge = LLMJudge("x", FakeClient(reply))
        found.append(shown(lambda judge=judge: asyncio.run(judge(0, 0))))
    brace = LLMJudge('{action}: {"score": 1}', FakeClient("1"))
    return [*found, shown(lambda: asyncio.run(brace(0, 0)))]


def main():
    same = [BaseRubric is Rubric, SameGate is Gate, SameJudge is LLMJudge]
    told = {
        "same": [*same, SameTrajectoryRubric is TrajectoryRubric],
        "nested": nested(),
        "containers": containers(),
        "hooks": hooks(),
        "asynchronous": asyncio.run(asynchronous()),
        "trajectories": trajectories(),
        "judged": asyncio.run(judged()),
        "environment": in_an_environment(),
        "faults": {
            "on a loop": asyncio.run(on_a_loop()),
            "kept after a reset": reset_is_recursive(),
            "a name": names_overwrite_nothing(),
            "not a number": not_a_number_is_no_score(),
            "replaced": what_replaces_a_child(),
            "judges": judges(),
        },
    }
    json.dump(told, sys.stdout, default=str)


if __name__ == "__main__":
    main()
