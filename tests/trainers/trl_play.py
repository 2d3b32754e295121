"""Plays with TRL's GRPOTrainer: a program of its own, in an environment that has TRL.

Each way of `WAYS` trains a tiny model for a few steps, and prints what came of it as JSON.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from datasets import concatenate_datasets
from tiny_models import imitate, model_for, tokenizer_for
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from openenv import GenericEnvClient
from openenv.harness import EnvironmentSessions, HarnessRunLimits, MCPHarnessAdapter
from openenv.integrations.trl import (
    EnvironmentCost,
    env_reward,
    environment_factory,
    rollout_func,
    task_dataset,
)
from openenv.integrations.typed_tools import Parameters, typed_function

PROMPT = "Act by the tool."


def call(name: str, **arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call><|im_end|>"


def tools_of(place: Any) -> list[Any]:
    """As TRL finds them."""
    found = inspect.getmembers(type(place), predicate=inspect.isfunction)
    others = ("reset", "get_reward")
    return [getattr(place, n) for n, _ in found if not n.startswith("_") and n not in others]


def speaker(*speech: tuple[Any, list[str]]) -> tuple[Any, Any]:
    """A tiny model that makes such calls in such environments, any of them alike."""
    heard: list[tuple[list[dict[str, Any]], list[Any], list[str]]] = []
    for factory, calls in speech:
        place = factory()
        for seed in range(48):
            said = [{"role": "user", "content": PROMPT}]
            said[0]["content"] += place.reset(prompt=said, seed=seed)
            heard.append((said, tools_of(place), calls))
    texts = [qwen2_5_chat_template]
    for said, tools, calls in heard:
        texts += [json.dumps(said), json.dumps([get_json_schema(one) for one in tools]), *calls]
    tokenizer = tokenizer_for(texts, qwen2_5_chat_template, 1024)
    model = model_for(tokenizer)
    shown = [
        (
            tokenizer.apply_chat_template(
                said, tools=tools, add_generation_prompt=True, return_dict=False
            ),
            tokenizer.encode(one),
            [1] * len(tokenizer.encode(one)),
        )
        for said, tools, calls in heard
        for one in calls
    ]
    losses = imitate(model, shown, steps=150)
    assert losses[-1] < 0.3, losses
    return model, tokenizer


def config(folder: str, **options: Any) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        **{
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 160,
            "max_tool_calling_iterations": 3,
            "max_steps": 3,
            "logging_steps": 1,
            "use_cpu": True,
            "report_to": [],
            "save_strategy": "no",
            "disable_tqdm": True,
            "bf16": False,
            "log_completions": False,
            **options,
        },
    )


def trained(folder: str, cost: EnvironmentCost, **options: Any) -> dict[str, Any]:
    settings = options.pop("settings", {})
    trainer = GRPOTrainer(args=config(folder, **settings), callbacks=[cost], **options)
    error = None
    try:
        trainer.train()
    except Exception as found:
        error = f"{type(found).__name__}: {found}"
    return {
        "logs": trainer.state.log_history,
        "costs": [
            {"seconds": one.seconds, "tokens": one.tokens, **vars(one.environments)}
            for one in cost.steps
        ],
        "error": error,
    }


def one(
    folder: str, environment: str = "blackjack", queue_s: float | None = None, **options: Any
) -> dict[str, Any]:
    """One environment, whose own reward is the only one."""
    place: Any = environment
    if queue_s is not None:
        place = GenericEnvClient(environment, queue_timeout_s=queue_s)
    factory = environment_factory(place, **options)
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    model, tokenizer = speaker((environment_factory("blackjack"), [hit, stand]))
    return trained(
        folder,
        EnvironmentCost(factory),
        model=model,
        processing_class=tokenizer,
        train_dataset=task_dataset(16, prompt=PROMPT),
        environment_factory=factory,
    )


def overlapping(folder: str) -> dict[str, Any]:
    """Tools that are coroutines."""
    return one(folder, is_async=True)


def many(folder: str) -> dict[str, Any]:
    """Three environments in one run."""
    echo, openspiel, coding = map(environment_factory, ("echo", "openspiel", "coding"))
    model, tokenizer = speaker(
        (echo, [call("echo_message", message="hello")]),
        (openspiel, [call("open_spiel", action_id=i) for i in range(3)]),
        (coding, [call("code", code="print(1)")]),
    )
    rows = [
        task_dataset(8, prompt=PROMPT).add_column("environment", [name] * 8)
        for name in ("echo", "openspiel", "coding")
    ]
    return trained(
        folder,
        EnvironmentCost(echo, openspiel, coding),
        model=model,
        processing_class=tokenizer,
        train_dataset=concatenate_datasets(rows),
        environment_factory={"echo": echo, "openspiel": openspiel, "coding": coding},
        settings={"per_device_train_batch_size": 12, "max_steps": 6, "shuffle_dataset": False},
    )


def together(folder: str, environment: str = "blackjack", **options: Any) -> dict[str, Any]:
    """All rollouts of a batch at the same time, by rollout_func."""
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    model, tokenizer = speaker((environment_factory("blackjack"), [hit, stand]))
    rollouts = rollout_func(environment, **options)
    return trained(
        folder,
        EnvironmentCost(rollouts),
        model=model,
        processing_class=tokenizer,
        train_dataset=task_dataset(16, prompt=PROMPT),
        reward_funcs=env_reward,
        rollout_func=rollouts,
    )


def harness(folder: str, environment: str = "blackjack") -> dict[str, Any]:
    """A rollout as TRL's own worker of harnesses plays it; the model stands for vLLM's server."""
    import asyncio
    import threading

    import torch
    from trl.chat_template_utils import add_response_schema
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    factory = environment_factory(environment)
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    model, tokenizer = speaker((factory, [hit, stand]))
    sessions = EnvironmentSessions(environment)

    class Loop(_HarnessRolloutLoop):  # type: ignore[misc] # where TRL is not installed
        def __init__(self) -> None:
            """Without its clients of vLLM."""
            self.tokenizer = add_response_schema(tokenizer)
            self.chat_template: Any = None
            self.chat_template_kwargs: dict[str, Any] = {}
            self._adapter, self._factory = MCPHarnessAdapter(), sessions
            self._limits = HarnessRunLimits(max_turns=4)
            self._live_sessions: set[Any] = set()
            self._stop_event = threading.Event()
            self._rollout_reward_fn, self._fork_threshold_tokens = None, 0
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
            found = model.generate(
                torch.tensor([prompt_ids]),
                do_sample=True,
                max_new_tokens=40,
                output_scores=True,
                return_dict_in_generate=True,
            )
            said = found.sequences[0, len(prompt_ids) :]
            scores = model.compute_transition_scores(
                found.sequences, found.scores, normalize_logits=True
            )
            return said.tolist(), scores[0].tolist()

    played = []
    loop = Loop()
    for group in range(6):
        prompt = [{"role": "user", "content": PROMPT}]
        (completion, ids, _, calls, _, reward), metrics = loop._run_session(prompt, group)
        turns = 0 if metrics is None else metrics["turns"]
        played.append([len(completion), len(ids), calls, reward, turns])
    return {"played": played, "open": len(loop._live_sessions)}


def schemas(folder: str) -> dict[str, Any]:
    """What transformers reads of tools made of JSON schemas, given as JSON on stdin."""
    found = {}
    for name, schema in json.load(sys.stdin).items():
        made = typed_function(name, f"Does {name}.", Parameters(schema), lambda **given: given)
        found[name] = get_json_schema(made)["function"]
    return found


WAYS = {
    "harness": harness,
    "schemas": schemas,
    "one": one,
    "many": many,
    "overlapping": overlapping,
    "together": together,
}

if __name__ == "__main__":
    way, folder, *more = sys.argv[1:]
    sys.stdout.write(json.dumps(WAYS[way](folder, **json.loads(more[0] if more else "{}"))))
