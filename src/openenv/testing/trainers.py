"""`check_integration`: check that a trainer's integration never trains on a wrong signal.

Integrations fail silently: they count a failed environment as 0, score a thought, or drop a column
of the dataset, and the run goes on. In this check the trainer itself plays an environment whose
behavior is fully known, with a model that follows a script:

    def play(run: TrainerRun) -> TrainerResult:
        # Play each of run.cases at run.address by your trainer, with at most run.max_turns
        # replies. The row is case.row, the model says case.reply(turn).
        ...

    check_integration(play)

Each case is an episode with one event: an answer behind a thought, a reset that raises, a reply
that was cut off. The environment records the calls that reach it, and `play` returns the rollouts
as the trainer processed them. If either is wrong, the finding says what was observed, what was
expected, and how to fix it.

No trainer is imported. `TrainerRun` and `TrainerResult` convert to and from JSON, so that the
trainer can run in its own process with its own packages.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import uvicorn

from openenv._internal.logs import silence
from openenv._internal.quoting import did_you_mean
from openenv.arrays import Blob
from openenv.environment import Environment, scored
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score
from openenv.server.app import create_app
from openenv.server.run import bind
from openenv.types import Action, Observation, State

TOOL = "write"
RIGHT = ("press(1)", "press(2)")  # the correct actions, in this order
WRONG = "press(9)"  # an action that must never be carried out
WON, LOST = 1.0, -1.0
BEGINS = "This is box"  # the beginning of the first observation
MAX_TURNS = 4
# An error about missing sessions must name the setting to change or mention sessions.
ROOM = re.compile(r"MAX_CONCURRENT_ENVS|max_concurrent_envs|sessions?\b", re.IGNORECASE)
UNEQUAL = re.compile("UnequalBeginnings|beg[ai]ns? (differently|with)", re.IGNORECASE)
PICTURE = re.compile("picture|image", re.IGNORECASE)
NAMED = {"room": ROOM, "unequal": UNEQUAL, "picture": PICTURE}  # required in errors that end a run
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
STARTS_WITHIN_S = 30.0

Kind = Literal["right", "right_or_ended", "left_out", "lost", "room", "unequal", "picture"]
"""The required outcome of the rollouts of a case:

- ``right``: The right actions were carried out, and the rollout is trained on with its reward.
- ``right_or_ended``: As for ``right``; or the trainer ended the episode at the reply without an
  action, and the rollout is left out or has at most the reward of a lost episode.
- ``left_out``: The rollout has no reward, and is not trained on.
- ``lost``: The rollout is left out, or has at most the reward of a lost episode.
- ``room``: As for ``right``; or an error mentions the missing sessions.
- ``unequal``: An error says that rollouts of a group began differently. At most one rollout is
  trained on, which has nothing to be compared with.
- ``picture``: The model received the picture; or the rollout is left out, with an error.
"""


# ------------------------------------------------------------------ the model's replies


@dataclass(frozen=True)
class ScriptedReply:
    """A scripted reply of the model.

    Attributes:
        codes: The code of each call of the tool ``write``.
        thought: The text before the calls, between ``<think>`` and ``</think>``; None for none.
        form: How the calls are written: as ``calls``; ``fenced``, as code in a Markdown fence
            without a call; or ``malformed``, as a call with incomplete JSON.
        is_cut: True if the reply was cut off at its limit: leave out the token that ends a turn, or
            return ``length`` as the finish reason.
        is_open: True if the thought is not closed, and contains the calls.
    """

    codes: tuple[str, ...]
    thought: str | None = None
    form: Literal["calls", "fenced", "malformed"] = "calls"
    is_cut: bool = False
    is_open: bool = False

    @property
    def arguments(self) -> list[dict[str, Any] | str]:
        """The arguments of each call, as a chat API returns them separately from the text.

        A malformed call's arguments are text that is not JSON. The list is empty if the reply is
        only text.
        """
        if self.form == "fenced" or self.is_open:
            return []
        if self.form == "malformed":
            return [json.dumps({"code": one})[:-2] for one in self.codes]
        return [{"code": one} for one in self.codes]

    def text(self, *, with_calls: bool = True, as_code: bool = False) -> str:
        """Write the reply as text.

        Args:
            with_calls: Include calls, in the format of Qwen and Hermes. Set it to False for a chat
                API, which returns calls separately.
            as_code: Write a single, well-formed call as bare code, for a trainer whose model acts
                with text.
        """
        written = [_written_call(one, 3 * (self.form == "malformed")) for one in self.codes]
        if self.form == "fenced":
            written = [f"```python\n{one}\n```" for one in self.codes]
        elif as_code and self.form == "calls" and len(self.codes) == 1 and not self.is_open:
            written = list(self.codes)
        elif not with_calls and not self.is_open:
            written = []
        said = "\n".join(written)
        if self.thought is None:
            return said
        end = "\n" if self.is_open else "\n</think>\n\n"
        return f"<think>\n{self.thought}{end}{said}"


def _written_call(code: str, lost: int = 0) -> str:
    """Write a call in the format of Qwen and Hermes, without the last `lost` characters."""
    said = json.dumps({"name": TOOL, "arguments": {"code": code}})
    return f"<tool_call>\n{said[: len(said) - lost]}\n</tool_call>"


FIRST, SECOND = ScriptedReply(RIGHT[:1]), ScriptedReply(RIGHT[1:])
NOTHING_LEFT = ScriptedReply(("press(0)",))  # for turns past the end of the script


# ------------------------------------------------------------------ the cases


@dataclass(frozen=True)
class TrainerCase:
    """An event in an episode, and the required outcome.

    Attributes:
        name: The case's name.
        number: The seed of the episodes, with which the environment selects the event.
        replies: The model's replies by turn.
        expected: The required outcome of the rollouts; see `Kind`.
        cure: What to do if the outcome differs.
        reset: Further arguments of the reset.
        shows: Text that the model must see in the episode.
        is_alone: True if the case is played in its own run, which it may end.
        rollouts: Minimum number of rollouts of the row.
        repeats: True if the model repeats the last reply without end.
    """

    name: str
    number: int
    replies: tuple[ScriptedReply, ...]
    expected: Kind
    cure: str
    reset: Mapping[str, Any] = field(default_factory=dict)
    shows: str = ""
    is_alone: bool = False
    rollouts: int = 1
    repeats: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """The row of a dataset: a prompt, and the arguments of the reset."""
        prompt = [{"role": "user", "content": f"Press the buttons ({self.name})."}]
        return {"prompt": prompt, "seed": self.number, **self.reset}

    def reply(self, turn: int) -> ScriptedReply:
        """Return the model's reply in a turn.

        Args:
            turn: Number of replies that the model gave in this episode before.
        """
        if turn < len(self.replies):
            return self.replies[turn]
        return self.replies[-1] if self.repeats else NOTHING_LEFT


def _cases() -> Iterator[TrainerCase]:
    numbers = itertools.count(1)

    def case(
        name: str, *replies: ScriptedReply, expected: Kind = "right", cure: str, **more: Any
    ) -> TrainerCase:
        replies = replies or (FIRST, SECOND)
        return TrainerCase(name, next(numbers), replies, expected, cure, **more)

    yield case(
        "fine",
        cure="carry out each call, and give the trainer the environment's reward of the episode",
    )
    yield case(
        "behind_a_thought",
        ScriptedReply(RIGHT[:1], thought=f"Shall I call {WRONG}? No."),
        ScriptedReply(RIGHT[1:], thought="One is left."),
        cure="take the thought away before the action is read: openenv.rollouts.replies.read_reply",
    )
    yield case(
        "a_call_in_a_thought",
        ScriptedReply(RIGHT[:1], thought=f"Shall I say\n{_written_call(WRONG)}\nNo."),
        SECOND,
        cure="look for calls behind the thought only: what a model weighs, it has not done",
    )
    yield case(
        "in_a_fence",
        *(ScriptedReply((one,), form="fenced") for one in RIGHT),
        cure="where the action is code, take what stands in the Markdown fence: read_reply does",
    )
    yield case(
        "several_calls",
        ScriptedReply(RIGHT),
        cure="carry out every call of a reply, in order: EpisodeSession.act_by does",
    )
    yield case(
        "malformed_call",
        ScriptedReply((WRONG,), form="malformed"),
        FIRST,
        SECOND,
        expected="right_or_ended",
        cure="tell the model why its call could not be read and let it go on; never take such a "
        "call for words, nor guess what it meant",
    )
    yield case(
        "cut_off",
        ScriptedReply((WRONG,), is_cut=True),
        FIRST,
        SECOND,
        expected="right_or_ended",
        cure="carry out nothing of a reply that ended at its limit: pass is_cut to read_reply",
    )
    yield case(
        "cut_off_in_a_thought",
        ScriptedReply((WRONG,), thought="First I try", is_cut=True, is_open=True),
        FIRST,
        SECOND,
        expected="right_or_ended",
        cure="a thought that is not closed takes the whole reply: look for calls behind it only",
    )
    yield case(
        "refused",
        ScriptedReply((WRONG,)),
        FIRST,
        SECOND,
        shows="there is no button 9",
        cure="an action that the environment refuses is no failure: tell the model why, and go on",
    )
    yield case(
        "reset_raises",
        FIRST,
        expected="left_out",
        cure="a reset that raises makes its rollout one without a reward; the others go on",
    )
    yield case(
        "breaks",
        expected="left_out",
        cure="a step that raises makes its rollout one without a reward, not one worth 0",
    )
    yield case(
        "unscored",
        expected="left_out",
        cure="a reward of None is not 0: leave the rollout out; EpisodeSession.score says why",
    )
    yield case(
        "unfinished",
        FIRST,
        expected="lost",
        repeats=True,
        cure="an episode that is given up is worth the lowest declared reward at most: "
        'EpisodeSession.score("earned")',
    )
    yield case(
        "unfinished_without_a_range",
        FIRST,
        expected="left_out",
        repeats=True,
        cure="where no range of rewards is declared, nobody knows what giving up is worth, and 0 "
        "may be more than losing pays: leave the rollout out",
    )
    yield case(
        "task_id",
        reset={"task_id": "blue"},
        shows="blue",
        cure="pass every column of the row that reset takes: else another task is played, and its "
        "reward is that of the wrong prompt",
    )
    yield case(
        "no_room",
        expected="room",
        is_alone=True,
        rollouts=3,
        cure="wait for a session, or end the run with words that say how many are missing and "
        "where to set them (MAX_CONCURRENT_ENVS); never train on the rollouts that found one",
    )
    yield case(
        "unequal_beginnings",
        expected="unequal",
        is_alone=True,
        rollouts=2,
        cure="compare what the rollouts of a group are shown first: "
        "openenv.rollouts.beginnings.Beginnings",
    )
    yield case(
        "picture",
        expected="picture",
        is_alone=True,
        cure="give a model that sees the picture as content, and refuse it for one that does not: "
        "EpisodeSessions.of(..., shows_pictures=True), or False",
    )


CASES = tuple(_cases())
"""Every case, in the order in which they are played."""

_BY_NAME = {case.name: case for case in CASES}
_BY_NUMBER = {case.number: case for case in CASES}


def find_case(text: str) -> TrainerCase:
    """Return the case of a prompt, for a model that receives only the prompt.

    Args:
        text: The prompt as text.

    Raises:
        ValueError: The prompt does not identify a case.
    """
    found = re.search(r"box (\d+)", text)
    if found is not None and int(found[1]) in _BY_NUMBER:
        return _BY_NUMBER[int(found[1])]
    found = re.search(r"Press the buttons \((\w+)\)", text)  # used if the reset failed
    if found is not None and found[1] in _BY_NAME:
        return _BY_NAME[found[1]]
    raise ValueError(
        "the prompt holds neither the first observation ('This is box ...') nor the row's "
        f"prompt: {text[-300:]!r}. Show the model both"
    )


# ------------------------------------------------------------------ the planted environment


class WriteAction(Action):
    """Write code.

    Attributes:
        code: A line of code, such as press(1).
        is_loud: Press with a noise.
    """

    code: str
    is_loud: bool = False


class Box(Observation):
    """A box with buttons."""

    text: str = ""
    picture: Annotated[bytes, Blob("image/png")] | None = None


@dataclass
class _PlantedEpisode:
    """A record of the calls that reached the environment in an episode."""

    seed: int | None
    task_id: str | None
    codes: list[str] = field(default_factory=list)


class PlantedEnvironment(Environment[WriteAction, Box, State]):
    """A box whose two buttons must be pressed in order; the seed selects what else happens."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal")

    episodes: ClassVar[list[_PlantedEpisode]] = []

    def __init__(self) -> None:
        super().__init__()
        self._case = "fine"
        self._episode = _PlantedEpisode(None, None)

    def reset(self, seed: int | None = None, task_id: str | None = None) -> Box:  # type: ignore[override]
        """Begin an episode of the case whose number is the seed.

        Args:
            seed: The case's number.
            task_id: The color of the box.
        """
        case = _BY_NUMBER.get(seed or 0)
        self._case = case.name if case else "fine"
        self._episode = _PlantedEpisode(seed, task_id)
        self.episodes.append(self._episode)
        is_ranged = self._case != "unfinished_without_a_range"
        self.REWARD = RewardSpec("terminal", (LOST, WON) if is_ranged else None)  # type: ignore[misc]
        if self._case == "reset_raises":
            raise RuntimeError("the box does not open")
        text = f"{BEGINS} {seed}, which is {task_id or 'gray'}. Press 1, then 2."
        if self._case == "unequal_beginnings":
            text += f" It was opened {len(self.episodes)} times."
        return Box(text=text, picture=PNG if self._case == "picture" else None)

    def step(self, action: WriteAction) -> Box:  # type: ignore[override]
        """Press a button."""
        codes = self._episode.codes
        codes.append(action.code)
        if self._case == "refused" and action.code == WRONG:
            raise Refused("there is no button 9; press 1, then 2")
        done = [one for one in codes if not (self._case == "refused" and one == WRONG)]
        if self._case.startswith("unfinished"):
            return Box(text="Nothing happens.")
        if len(done) < len(RIGHT):
            return Box(text=f"Done: {action.code}.")
        if self._case == "breaks":
            raise RuntimeError("the box fell to the floor")
        ended = Box(text="The box is open.", done=True)
        if self._case == "unscored":
            return scored(ended, Score(unscored="the judge did not answer"))
        return scored(ended, WON if tuple(done) == RIGHT else LOST)

    @property
    def state(self) -> State:
        """The number of steps."""
        return State(step_count=len(self._episode.codes))


@contextlib.contextmanager
def _serving(sessions: int) -> Iterator[tuple[str, list[_PlantedEpisode]]]:
    """Serve the environment from a thread; yield the address and the list of episodes."""
    noted: list[_PlantedEpisode] = []
    environment = type("PlantedEnvironment", (PlantedEnvironment,), {"episodes": noted})
    app = create_app(environment, env_name="planted", max_concurrent_envs=sessions)
    with bind("127.0.0.1", 0) as bound:
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}", noted
        finally:
            server.should_exit = True
            thread.join(STARTS_WITHIN_S)


# ------------------------------------------------------------------ runs and results


@dataclass(frozen=True)
class TrainerRun:
    """Cases that the trainer must play together.

    Attributes:
        address: The environment's address.
        cases: The cases; of each case at least `TrainerCase.rollouts` rollouts must be played.
        max_turns: Maximum number of replies in a rollout.
    """

    address: str
    cases: tuple[TrainerCase, ...]
    max_turns: int = MAX_TURNS

    def as_data(self) -> dict[str, Any]:
        """Return the run as JSON data."""
        names = [case.name for case in self.cases]
        return {"address": self.address, "cases": names, "max_turns": self.max_turns}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TrainerRun:
        """Create a run from the data that `as_data` returned."""
        cases = tuple(_BY_NAME[name] for name in data["cases"])
        return cls(data["address"], cases, data["max_turns"])


@dataclass(frozen=True)
class TrainerRollout:
    """A rollout as the trainer processed it.

    Attributes:
        reward: The environment's reward, as the trainer received it; None if there was none.
        is_trained_on: True if the rollout counts in an update: its tokens are in the loss, or its
            reward is in the baseline of its group. False if it raised or was left out of its group.
        shown: All text that the model saw; None if unknown.
        learnt: The text of the tokens in the loss; None if unknown.
        pictures: Number of pictures that the model received.
        error: The error that the rollout raised; None if it raised no error.
    """

    reward: float | None = None
    is_trained_on: bool = False
    shown: str | None = None
    learnt: str | None = None
    pictures: int = 0
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"raised {self.error[:300]}"
        reward = "no reward" if self.reward is None else f"the reward {self.reward}"
        return f"has {reward} and is {'' if self.is_trained_on else 'not '}trained on"


@dataclass(frozen=True)
class TrainerResult:
    """The trainer's results of a run.

    Attributes:
        rollouts: The rollouts of each case, by the case's name.
        error: The error that ended the trainer; None if the run completed.
    """

    rollouts: Mapping[str, Sequence[TrainerRollout]] = field(default_factory=dict)
    error: str | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        rollouts = {name: [asdict(one) for one in of] for name, of in self.rollouts.items()}
        return {"rollouts": rollouts, "error": self.error}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TrainerResult:
        """Create a result from the data that `as_data` returned."""
        found = {
            name: [TrainerRollout(**one) for one in of] for name, of in data["rollouts"].items()
        }
        return cls(found, data["error"])


Play = Callable[[TrainerRun], TrainerResult]
"""A function that plays a run with the trainer. An exception counts as the trainer's error."""


# ------------------------------------------------------------------ findings


@dataclass(frozen=True)
class CaseFinding:
    """The finding on a case.

    Attributes:
        case: The case's name.
        is_kept: True if the outcome is as required; None if the case does not apply.
        detail: What is wrong and how to fix it, or why the case does not apply.
    """

    case: str
    is_kept: bool | None
    detail: str = ""

    def __str__(self) -> str:
        mark = {True: "kept", False: "BROKEN", None: "not applicable"}[self.is_kept]
        return f"{mark}: {self.case}" + (f"\n    {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class IntegrationReport:
    """All findings on an integration."""

    name: str
    findings: tuple[CaseFinding, ...]

    @property
    def broken(self) -> list[CaseFinding]:
        """The cases with a wrong outcome."""
        return [one for one in self.findings if one.is_kept is False]

    def as_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {"name": self.name, "findings": [asdict(one) for one in self.findings]}

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {one}" for one in self.findings)])


class IntegrationFailed(AssertionError):
    """An error for an integration that failed the check; `report` has the findings."""

    def __init__(self, report: IntegrationReport) -> None:
        self.report = report
        lines = "\n".join(f"  {one}" for one in report.broken)
        super().__init__(f"{report.name} trains on a wrong signal:\n{lines}")


def check_integration(
    play: Play,
    *,
    name: str = "the integration",
    not_applicable: Mapping[str, str] | None = None,
    max_turns: int = MAX_TURNS,
) -> IntegrationReport:
    """Check that an integration of a trainer trains only on the right signal.

    The environment is served on a port of this machine. `play` is called once with all cases that
    can be played together, and once for each case that may end a run.

    Args:
        play: Function that plays cases with the trainer itself; see `TrainerRun` and
            `TrainerResult`.
        name: The integration's name, for the report.
        not_applicable: Cases that cannot happen with this trainer, with the reasons.
        max_turns: Maximum number of replies in a rollout; at least 4.

    Returns:
        A report of all findings.

    Raises:
        IntegrationFailed: A case has a wrong outcome; the report lists all findings.
        ValueError: `not_applicable` names an unknown case or gives no reason, or `max_turns` is
            less than 4.
    """
    left_out = dict(not_applicable or {})
    for case_name, why in left_out.items():
        if case_name not in _BY_NAME:
            hint = did_you_mean(case_name, _BY_NAME) or f"; expected one of {', '.join(_BY_NAME)}"
            raise ValueError(f"not_applicable names the unknown case {case_name!r}{hint}")
        if not why.strip():
            what = f"not_applicable[{case_name!r}]"
            raise ValueError(f"{what} is empty; say why the case cannot happen")
    if max_turns < MAX_TURNS:
        raise ValueError(f"max_turns={max_turns}; expected at least {MAX_TURNS}")
    cases = [case for case in CASES if case.name not in left_out]
    together = [case for case in cases if not case.is_alone]
    found: dict[str, CaseFinding] = {}
    for group in [together, *([case] for case in cases if case.is_alone)]:
        if group:
            found |= {one.case: one for one in _play_cases(play, group, max_turns)}
    for case, why in left_out.items():
        found[case] = CaseFinding(case, None, why)
    report = IntegrationReport(name, tuple(found[case.name] for case in CASES))
    if report.broken:
        raise IntegrationFailed(report)
    return report


def _play_cases(play: Play, cases: Sequence[TrainerCase], max_turns: int) -> Iterator[CaseFinding]:
    sessions = 1 if cases[0].expected == "room" else 64
    with silence("openenv.execution"), _serving(sessions) as (address, episodes):
        try:
            played = play(TrainerRun(address, tuple(cases), max_turns))
        except Exception as error:
            played = TrainerResult(error=f"{type(error).__name__}: {error}")
    for case in cases:
        its = [one for one in episodes if one.seed == case.number]
        strays = [one for one in episodes if one.seed not in _BY_NUMBER]
        why = _find_fault(case, played, its, strays)
        cure = f"{case.cure[0].upper()}{case.cure[1:]}."
        yield CaseFinding(case.name, why is None, "" if why is None else f"{why}. {cure}")


# ------------------------------------------------------------------ the judgment


def _find_fault(
    case: TrainerCase,
    played: TrainerResult,
    episodes: Sequence[_PlantedEpisode],
    strays: Sequence[_PlantedEpisode],
) -> str | None:
    """Describe what is wrong with a case, or return None."""
    rollouts = played.rollouts.get(case.name, ())
    if played.error is not None:
        if case.is_alone:
            if NAMED[case.expected].search(played.error):
                return None
            return f"the trainer ended with {played.error[:500]}, which does not say why"
        if not rollouts:
            return f"the trainer ended with {played.error[:500]}; expected that the run goes on"
    if len(rollouts) < case.rollouts:
        return f"{len(rollouts)} rollouts were returned; expected {case.rollouts} or more"
    # A run may be refused before an episode begins, for example by a full server.
    is_refused = case.is_alone and all(one.error is not None for one in rollouts)
    if not episodes and not is_refused:
        seen = f"{len(strays)} episodes began with other seeds" if strays else "no episode began"
        return f"no episode was begun with seed={case.number}, and {seen}: the row's seed is lost"
    if case.expected == "unequal":
        return _wrong_group(rollouts)
    # An episode without actions is a retry, or was begun only for the first observation.
    acted = [one for one in episodes if one.codes] or episodes
    wrong = [_wrong_actions(case, one) for one in acted]
    wrong += [_wrong_rollout(case, one) for one in rollouts]
    return next((why for why in wrong if why is not None), None)


def _wrong_group(rollouts: Sequence[TrainerRollout]) -> str | None:
    trained = [one for one in rollouts if one.is_trained_on]
    is_said = any(UNEQUAL.search(one.error or "") for one in rollouts)
    if len(trained) < 2 and is_said:
        return None
    return (
        f"{len(trained)} of {len(rollouts)} rollouts of one row are trained on, though each began "
        f"differently; expected an error that says so, for all of them but one"
    )


def _wrong_actions(case: TrainerCase, episode: _PlantedEpisode) -> str | None:
    task = case.reset.get("task_id")
    if episode.task_id != task:
        return f"reset was called with task_id={episode.task_id!r}; expected {task!r}"
    codes = tuple(episode.codes)
    wanted: tuple[str, ...] = RIGHT
    if case.repeats:
        wanted = RIGHT[:1] * max(len(codes), 1)
    elif case.name in ("reset_raises", "refused"):
        wanted = () if case.name == "reset_raises" else (WRONG, *RIGHT)
    if codes == wanted[: None if case.expected == "right" else len(codes)]:
        return None
    return f"the environment was given {list(codes)}; expected {list(wanted)}"


def _wrong_rollout(case: TrainerCase, rollout: TrainerRollout) -> str | None:
    wrong = _wrong_worth(case, rollout)
    if wrong is not None or not rollout.is_trained_on:
        return wrong
    for words in (BEGINS, case.shows):
        if rollout.shown is not None and words not in rollout.shown:
            return f"the model was not shown {words!r}, and the rollout is trained on"
    return None if rollout.learnt is None else _wrong_tokens(rollout.learnt)


def _wrong_worth(case: TrainerCase, rollout: TrainerRollout) -> str | None:
    is_out = not rollout.is_trained_on
    is_right = rollout.is_trained_on and rollout.reward == WON
    is_lost = rollout.is_trained_on and rollout.reward is not None and rollout.reward <= LOST
    accepted, expected = {
        "right": (is_right, f"the reward {WON}, trained on"),
        "right_or_ended": (
            is_right or is_lost or is_out,
            f"the reward {WON}, trained on; or, if it ends there, {LOST} at most or no reward",
        ),
        "left_out": (is_out and rollout.reward is None, "no reward, and not trained on"),
        "lost": (is_lost or is_out, f"a reward of {LOST} at most, or no reward"),
        "room": (
            is_right or bool(rollout.error and ROOM.search(rollout.error)),
            f"the reward {WON}, trained on; or an error that names the missing sessions",
        ),
        "picture": (
            rollout.pictures > 0 and "iVBORw0KGgo" not in (rollout.shown or "")
            if rollout.is_trained_on
            else bool(PICTURE.search(rollout.error or "")),
            "that the model is given the picture, or an error that says that it is not",
        ),
    }[case.expected]  # `unequal` concerns several rollouts
    return None if accepted else f"the rollout {rollout}; expected {expected}"


def _wrong_tokens(learnt: str) -> str | None:
    told = next((one for one in (BEGINS, "Done: press", "no button 9") if one in learnt), "")
    if told:
        return f"the tokens of {told!r} are in the loss, which the environment wrote, not the model"
    return None if "press" in learnt else f"no reply of the model is in the loss: {learnt[:200]!r}"
