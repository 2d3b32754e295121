"""Plays an environment with every family of chat templates that TRL ships.

    families_play.py FOLDER PAGE            write what was played, a file for each family, and the
                                            table of the page
    families_play.py FOLDER PAGE --check    say what is no longer as it should be

The model is a script: it writes what a model of the family writes, once in each way that matters.
What its tokenizer, template and the environment make of that is written down as it is.
"""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from openenv import Action, Environment, Observation, State
from openenv.reward import RewardSpec
from openenv.rollouts.batched import BatchPlayer
from openenv.rollouts.episode_sessions import EpisodeStart
from openenv.rollouts.formats import regions_in
from openenv.rollouts.replies import opens_thought
from openenv.rollouts.templates import TemplateError
from openenv.rollouts.tokens import Chat, TokenRollout

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
BAR = "\uff5c"
LOGPROB = -0.5
# Some templates write today's date.
DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4}"
)


# ------------------------------------------------------------------ what is played


class Put(Action):
    """Put a word on the board."""

    type: Literal["put"] = "put"
    word: str
    count: int = 1


class Stop(Action):
    """Stop, and have the board judged."""

    type: Literal["stop"] = "stop"


class Seen(Observation):
    text: str = ""


class Board(Environment[Put | Stop, Seen, State]):
    """The word 75001 is wanted on the board three times, as a text and not as a number."""

    REWARD = RewardSpec("terminal", (0.0, 1.0))
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.words: list[tuple[str, int]] = []

    def reset(self, **_: Any) -> Seen:  # type: ignore[override]
        self.words = []
        return Seen(text="The board is empty.")

    def step(self, action: Put | Stop, **_: Any) -> Seen:  # type: ignore[override]
        if isinstance(action, Stop):
            return Seen(text="Judged.", done=True, reward=float(self.words == [("75001", 3)]))
        self.words.append((action.word, action.count))
        return Seen(text=f"On the board: {action.word!r}, {action.count} times.")

    @property
    def state(self) -> State:
        return State()


class Say(Action):
    """Say the answer."""

    answer: str


class Question(Environment[Say, Seen, State]):
    """The answer is 42."""

    REWARD = RewardSpec("terminal", (0.0, 1.0))
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, **_: Any) -> Seen:  # type: ignore[override]
        return Seen(text="What is 6 times 7?")

    def step(self, action: Say, **_: Any) -> Seen:  # type: ignore[override]
        is_right = action.answer == "42"
        return Seen(text="Right." if is_right else "No.", done=is_right, reward=float(is_right))

    @property
    def state(self) -> State:
        return State()


# ------------------------------------------------------------------ who plays


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        end: The token by which its models end a turn.
        call_end: That by which they end one that calls tools, where that is another.
        thought: What stands around a thought; None where its models do not think.
        call: How its models write a call, where its template does not render one.
    """

    end: str
    call_end: str | None = None
    thought: tuple[str, str] | None = None
    call: str | None = None


THINK = ("<think>\n", "\n</think>\n\n")
CHATML = Family("<|im_end|>")
THINKING = Family("<|im_end|>", thought=THINK)
LFM2 = "<|tool_call_start|>[put(word='75001', count=3)]<|tool_call_end|>"
GEMMA4 = ("<|channel>thought\n", "\n<channel|>")
HARMONY = (
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)
END_OF_SENTENCE = f"<{BAR}end▁of▁sentence{BAR}>"

FAMILIES = {
    "cohere": Family("<|END_OF_TURN_TOKEN|>"),
    "cohere2": Family("<|END_OF_TURN_TOKEN|>"),
    "deepseek_r1_distill": Family(END_OF_SENTENCE, thought=THINK),
    "deepseekv3": Family(END_OF_SENTENCE, thought=THINK),
    "gemma": Family("<end_of_turn>"),
    "gemma3": Family("<end_of_turn>"),
    "gemma4": Family("<turn|>", "<|tool_response>", GEMMA4),
    "gemma4_v5": Family("<turn|>", "<|tool_response>", GEMMA4),
    "glm4moe": Family("<|user|>", "<|observation|>", THINK),
    "gptoss": Family("<|return|>", "<|call|>", HARMONY),
    "idefics3": Family("<end_of_utterance>"),
    "lfm2": Family("<|im_end|>", call=LFM2),
    "lfm2_2_5": Family("<|im_end|>", thought=THINK),
    "llama3": Family("<|eot_id|>"),
    "llama3_1": Family("<|eot_id|>"),
    "llama3_2": Family("<|eot_id|>"),
    "llava_next": Family("</s>"),
    "nemotron_3_nano": THINKING,
    "nemotron_3_ultra": THINKING,
    "phi3": Family("<|end|>"),
    "phi3_5": Family("<|end|>"),
    "qwen2_5": CHATML,
    "qwen2_5_vl": CHATML,
    "qwen3": THINKING,
    "qwen3_5_nothink": CHATML,
    "qwen3_5_think": THINKING,
    "qwen3_6": THINKING,
    "qwen3_8": THINKING,
    "qwen3_instruct_2507": CHATML,
    "qwen3_vl": CHATML,
    "smolvlm": Family("<end_of_utterance>"),
}
SPECIAL = re.compile(
    rf"<\|[^|<>\s]+\|>|<{BAR}[^{BAR}<>\s]+{BAR}>|<\|?[a-z_]+\|?>|\[/?[A-Z_]{{3,}}\]|<turn\|>"
)


def tokenizer_of(template: str, end: str) -> Any:
    """A tokenizer of bytes, in which what a template writes between texts is one token each."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    specials = sorted({*SPECIAL.findall(template), end, "<bos>"})
    inner.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=end, bos_token="<bos>", chat_template=template
    )


AS_JSON = '{"name": "put", "arguments": {"word": "75001", "count": 3}}'
STOP_AS_JSON = '{"name": "stop", "arguments": {}}'


def call_of(tokenizer: Any, family: Family, interface: Any, name: str, arguments: Any) -> str:
    """How a model of the family writes a call."""
    if family.call is not None:
        return (
            family.call
            if name == "put"
            else family.call.replace("put(word='75001', count=3)", "stop()")
        )
    said = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "a23456789",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        ],
    }
    functions = [tool.as_function() for tool in interface.tools]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "-"}, said], tools=functions, tokenize=False
    )
    region = next(one for one in reversed(regions_in(text)) if one.calls)
    return str(text[region.start : region.end])


# ------------------------------------------------------------------ what they say


def cases(told: str, put: str, stop: str, family: Family) -> dict[str, list[str]]:
    """What the model says in each case, a reply a turn; without its end it is cut off."""
    end = (family.call_end or family.end) if told == "tools" else family.end
    found = {
        "one call": [put + end, stop + end],
        "two calls": [f"{put}\n{stop}{end}"],
        "malformed": [put[: put.index("75001") + 2] + end, put + end, stop + end],
        "cut off": [put[: put.index("75001") + 2], put + end, stop + end],
    }
    if family.thought is not None:
        opens, closes = family.thought
        if told == "tools":
            closes = closes.replace(
                "<|start|>assistant<|channel|>final<|message|>", "<|start|>assistant"
            )
        thought = f"{opens}I could {STOP_AS_JSON} at once.{closes}"
        found["behind a thought"] = [thought + put + end, thought + stop + end]
        found["cut off in a thought"] = [thought[: len(thought) // 2], put + end, stop + end]
    return found


def word_cases(family: Family) -> dict[str, list[str]]:
    found = {
        "an answer": [f"41{family.end}", f"42{family.end}"],
        "cut off": ["42", f"42{family.end}"],
    }
    if family.thought is not None:
        opens, closes = family.thought
        found["behind a thought"] = [f"{opens}Is it 41?{closes}42{family.end}"]
        found["cut off in a thought"] = [f"{opens}It is 42", f"42{family.end}"]
    return found


# ------------------------------------------------------------------ what comes of it


def play(
    player: BatchPlayer, chat: Chat, tokenizer: Any, family: Family, replies: list[str]
) -> TokenRollout:
    left = list(replies)

    def generate(sequences: list[list[int]]) -> Any:
        said = left.pop(0) if left else f"Nothing more.{family.end}"
        if opens_thought(tokenizer.decode(sequences[0])):
            assert family.thought is not None
            opens, closes = family.thought
            said = said.removeprefix(opens) if said.startswith(opens) else closes + said
        ids = tokenizer.encode(said, add_special_tokens=False)
        return [ids for _ in sequences], [[LOGPROB] * len(ids) for _ in sequences]

    start = EpisodeStart(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Begin."}]
    )
    (found,) = player.play(chat, [start], generate)
    return found


def written(rollout: TokenRollout, tokenizer: Any) -> list[str]:
    """The rollout, piece by piece: who wrote it, of how many tokens, and its text."""
    assert rollout.logprobs is not None
    pieces: list[tuple[int, list[int], set[float]]] = []
    for token, mine, logprob in zip(
        rollout.completion_ids, rollout.mask, rollout.logprobs, strict=True
    ):
        if not pieces or pieces[-1][0] != mine:
            pieces.append((mine, [], set()))
        pieces[-1][1].append(token)
        pieces[-1][2].add(logprob)
    lines = []
    for mine, tokens, logprobs in pieces:
        who = "model" if mine else "told "
        assert logprobs == {LOGPROB if mine else 0.0}
        lines.append(f"{who} {len(tokens):4}  {tokenizer.decode(tokens)!r}")
    return lines


def told_of(family_name: str) -> str:
    family = FAMILIES[family_name]
    template = (TEMPLATES / f"{family_name}.jinja").read_text(encoding="utf-8")
    tokenizer = tokenizer_of(template, family.end)
    lines = [f"{family_name}: a turn ends by {family.end}"]
    for told in ("tools", "json"):
        lines += ["", f"==== {told}", ""]
        try:
            chat = Chat(tokenizer, BOARD.sessions.interface, told)
        except TemplateError as error:
            lines.append(f"refused: {error}")
            continue
        put, stop = AS_JSON, STOP_AS_JSON
        if told == "tools":
            interface = BOARD.sessions.interface
            put = call_of(tokenizer, family, interface, "put", {"word": "75001", "count": 3})
            stop = call_of(tokenizer, family, interface, "stop", {})
        lines += _played(BOARD, chat, tokenizer, family, cases(told, put, stop, family))
    lines += ["", "==== words", ""]
    chat = Chat(tokenizer, QUESTION.sessions.interface)
    assert chat.told == "text"
    lines += _played(QUESTION, chat, tokenizer, family, word_cases(family))
    return "\n".join(lines) + "\n"


def _played(
    player: BatchPlayer, chat: Chat, tokenizer: Any, family: Family, said: dict[str, list[str]]
) -> list[str]:
    lines: list[str] = []
    for name, replies in said.items():
        rollout = play(player, chat, tokenizer, family, replies)
        assert rollout.score.value == 1.0, (name, written(rollout, tokenizer))
        if not lines:
            lines += ["---- prompt", DATE.sub("DATE", tokenizer.decode(rollout.prompt_ids)), ""]
        lines += [f"---- {name}", *written(rollout, tokenizer)]
        lines += [f"steps {rollout.steps}, reward {rollout.score.value}", ""]
    return lines


def row_of(name: str, found: str) -> str:
    """A family's row of the page's table."""
    tools = found.split("==== json")[0]
    refused = re.search(r"refused: (.*)", tools)
    by_tools = "exact" if refused is None else f"refused: {refused[1]}"
    thinks = "none" if FAMILIES[name].thought is None else "taken away"
    return f"| `{name}` | {by_tools} | exact | exact | {thinks} |"


def main(folder: Path, page: Path, *, is_check: bool) -> int:
    logging.disable(logging.WARNING)
    played = {name: told_of(name) for name in FAMILIES}
    before, begin, rest = page.read_text(encoding="utf-8").partition("<!-- families -->\n")
    _, end, after = rest.partition("<!-- end of families -->\n")
    assert begin and end, f"{page} has no place for the table"
    table = [
        "| Template | `tools` | `json` | words | thoughts |",
        "| --- | --- | --- | --- | --- |",
        *(row_of(name, found) for name, found in played.items()),
    ]
    files = {folder / f"{name}.txt": found for name, found in played.items()}
    files[page] = before + begin + "\n".join(["", *table, "", end]) + after
    if not is_check:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    wrong = [path.name for path, text in files.items() if _read(path) != text]
    others = sorted({path.stem for path in folder.glob("*.txt")} - set(FAMILIES))
    if wrong or others:
        sys.stderr.write(f"not as played: {wrong}; of no family: {others}\n")
    return 1 if wrong or others else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    BOARD, QUESTION = BatchPlayer(Board, max_turns=6), BatchPlayer(Question, max_turns=6)
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), is_check="--check" in sys.argv))
    finally:
        BOARD.close()
        QUESTION.close()
