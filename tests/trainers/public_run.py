"""Run a training script of TRL's, unmodified but for the hardware; by a Python that has TRL.

    python public_run.py FOLDER SPEECH SCRIPT [ARGUMENT...]

The script gets no GPU, no vLLM, no tracker, two steps of 32 rollouts, and in place of its model a
tiny one that is built on the spot. That one makes the calls of `SPEECH`, JSON: by a phrase of the
prompt, the names and arguments of calls. Prints what came of it as JSON: what was logged, and for
each rollout its messages and what each reward function gave.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import torch
import trl
from datasets import concatenate_datasets
from tiny_models import model_for, tokenizer_for
from transformers import Qwen2ForCausalLM
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen3_chat_template

STEPS = 2
ROLLOUTS, GENERATIONS = 32, 4  # of a step, and of each of its prompts
NO_THOUGHT = "<think>\n\n</think>\n\n"
END = "<|im_end|>"
LAST = 0.1  # of how many calls a reply that makes none is said once
DONE = f"Done.{END}"
MOST_CALLS = 10  # after which it makes none
CERTAIN = 30.0  # added to the logit of what goes on with a reply
LONGEST = 1536  # tokens of a completion: a tiny model's context is short

Calls = list[tuple[str, dict[str, Any]]]
Tree: TypeAlias = "dict[int, tuple[float, Tree]]"

GRPOConfig, GRPOTrainer = trl.GRPOConfig, trl.GRPOTrainer
trained: list[Any] = []
rollouts: list[dict[str, Any]] = []


def config_without_hardware(folder: str, **options: Any) -> Any:
    """Return the script's own settings, for a CPU, offline, for two steps."""
    kept = {
        name: value
        for name, value in options.items()
        if not name.startswith("vllm_") and name not in ("use_vllm", "trackio_space_id")
    }
    kept["max_completion_length"] = min(kept.get("max_completion_length", LONGEST), LONGEST)
    needed = {
        "per_device_train_batch_size": ROLLOUTS,
        "num_generations": GENERATIONS,
        "gradient_accumulation_steps": 1,
        "temperature": 1.0,
        "output_dir": folder,
        "max_steps": STEPS,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOConfig(**{**kept, **needed})


# ------------------------------------------------------------------ a model that makes calls


class Speaker(Qwen2ForCausalLM):  # type: ignore[misc]
    """A tiny model of which only the choice between whole replies is its own.

    Tokens that go on with a reply that it knows are made far likelier than others; which of them
    it says is up to its weights, so that training has something to change.
    """

    def learn(self, tokenizer: Any, speech: dict[str, Calls]) -> None:
        """Take in what may be said where a phrase is in the first message of a user."""
        self._tokenizer = tokenizer
        self._start = tokenizer.convert_tokens_to_ids("<|im_start|>")
        self._user = tokenizer.encode("user\n")
        self._begins = [tokenizer.encode("assistant\n" + one) for one in (NO_THOUGHT, "")]
        self._done, self._replies = tree_of([(tokenizer.encode(DONE), 1.0)]), {}
        for phrase, calls in speech.items():
            replies = [(reply_of(name, arguments), 1.0) for name, arguments in calls]
            replies.append((DONE, LAST * len(replies)))
            self._replies[phrase] = tree_of(
                [(tokenizer.encode(reply), weight) for reply, weight in replies]
            )

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> Any:
        """Pass on the whole text, of which the cache leaves the last token alone."""
        return {**super().prepare_inputs_for_generation(input_ids, **kwargs), "whole": input_ids}

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        logits_to_keep: int = 0,
        whole: Any = None,
        **options: Any,
    ) -> Any:
        """Return what Qwen2 does, with the logits of what goes on with a known reply raised."""
        found = super().forward(input_ids, attention_mask, logits_to_keep=logits_to_keep, **options)
        kept = found.logits.shape[1]
        raised = torch.zeros_like(found.logits)
        for row, ids in enumerate((input_ids if whole is None else whole).tolist()):
            for at, tree in enumerate(self._expected(ids)[-kept:]):
                for token, (weight, _) in tree.items():
                    raised[row, at, token] = CERTAIN + math.log(weight)
        found.logits = found.logits + raised
        return found

    def _expected(self, ids: list[int]) -> list[Tree]:
        """Return what goes on with a known reply after each token."""
        expected: list[Tree] = [{}] * len(ids)
        begins = [at for at, token in enumerate(ids) if token == self._start]
        replies: Tree | None = None
        calls = 0
        for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
            said = ids[begin + 1 : end]
            if replies is None and said[: len(self._user)] == self._user:
                text = self._tokenizer.decode(said)
                (replies,) = (tree for phrase, tree in self._replies.items() if phrase in text)
            beginning = next((one for one in self._begins if said[: len(one)] == one), None)
            if beginning is not None and replies is not None:
                tree = replies if calls < MOST_CALLS else self._done
                calls += 1
                for at in range(begin + len(beginning), end):
                    expected[at] = tree
                    tree = tree.get(ids[at + 1], (0.0, {}))[1] if at + 1 < end else {}
        return expected


def reply_of(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as Qwen3 writes it."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>{END}"


def tree_of(replies: list[tuple[list[int], float]]) -> Tree:
    """Return by token the weight of what begins with it and what follows."""
    tree: Tree = {}
    for token in {ids[0] for ids, _ in replies if ids}:
        follow = [(ids[1:], weight) for ids, weight in replies if ids[:1] == [token]]
        tree[token] = sum(weight for _, weight in follow), tree_of(follow)
    return tree


def speaker(
    factory: Callable[[], Any], rows: list[dict[str, Any]], speech: dict[str, Calls]
) -> tuple[Any, Any]:
    """Return a tiny model that makes the calls of `speech`, and its tokenizer."""
    environment = factory()
    methods = inspect.getmembers(environment, predicate=inspect.ismethod)
    tools = [one for name, one in methods if not name.startswith("_") and name != "reset"]
    texts = [
        json.dumps([get_json_schema(tool) for tool in tools]),
        json.dumps(rows),
        *(reply_of(*call) for calls in speech.values() for call in calls),
        NO_THOUGHT,
    ]
    tokenizer = tokenizer_for(texts * 2, qwen3_chat_template, 1024)
    plain = model_for(tokenizer, positions=8192)
    model = Speaker(plain.config)
    model.load_state_dict(plain.state_dict())
    model.generation_config = plain.generation_config
    model.learn(tokenizer, speech)
    return model, tokenizer


# ------------------------------------------------------------------ what the script imports


def watched(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return the reward function; it also notes down what it was given and what it returned."""

    @functools.wraps(function)
    def noting(*arguments: Any, **columns: Any) -> list[Any]:
        rewards = function(*arguments, **columns)
        for messages, reward in zip(columns["completions"], rewards, strict=True):
            one = {"by": function.__name__, "messages": messages, "reward": reward}
            rollouts.append(one)
        return rewards

    return noting


def trainer_without_hardware(speech: dict[str, Calls], **options: Any) -> Any:
    """Return TRL's own trainer, of a tiny model in place of the one that is named."""
    assert isinstance(options.pop("model"), str)
    given = options["reward_funcs"]
    functions = given if isinstance(given, list) else [given]
    rows = list({json.dumps(row): row for row in options["train_dataset"]}.values())
    model, tokenizer = speaker(options["environment_factory"], rows, speech)
    options["reward_funcs"] = [watched(one) for one in functions]
    dataset = options["train_dataset"]  # of which a step takes as many rows as it has prompts
    times = -(-ROLLOUTS // GENERATIONS // len(dataset))
    options["train_dataset"] = concatenate_datasets([dataset] * times)
    trainer = GRPOTrainer(model=model, processing_class=tokenizer, **options)
    trained.append(trainer)
    return trainer


def main(folder: str, speech: str, script: str, *arguments: str) -> None:
    """Run the script as its users do, and print what came of it."""
    calls = json.loads(speech)
    trl.GRPOConfig = functools.partial(config_without_hardware, folder)
    trl.GRPOTrainer = functools.partial(trainer_without_hardware, calls)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    (trainer,) = trained
    found = {"logs": trainer.state.log_history, "rollouts": rollouts}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
