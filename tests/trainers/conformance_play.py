"""Plays the planted cases by a trainer; run by a Python that has it.

    python conformance_play.py WAY [ADDRESS_OF_A_MODEL]

Each line on stdin is a run, as JSON; each line on stdout is what came of it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from openenv.testing.trainers import (
    ScriptedReply,
    TrainerCase,
    TrainerResult,
    TrainerRollout,
    TrainerRun,
    find_case,
)

END = "<|im_end|>"


def raised(error: BaseException) -> TrainerRollout:
    return TrainerRollout(error=f"{type(error).__name__}: {error}")


async def side_by_side(
    run: TrainerRun, play: Callable[[TrainerCase], Any]
) -> dict[str, list[TrainerRollout]]:
    """The rollouts of every case, all at the same time; what one raises, it alone has raised."""
    cases = [case for case in run.cases for _ in range(case.rollouts)]
    played = await asyncio.gather(*map(play, cases), return_exceptions=True)
    found: dict[str, list[TrainerRollout]] = defaultdict(list)
    for case, one in zip(cases, played, strict=True):
        found[case.name].append(raised(one) if isinstance(one, BaseException) else one)
    return found


def reply_to(text: str, opens: str) -> ScriptedReply:
    """What the model says behind a prompt.

    Args:
        text: The prompt, in words.
        opens: How a turn of the model begins in it.
    """
    return find_case(text).reply(text.count(opens) - 1)


def written(reply: ScriptedReply, tokenizer: Any) -> list[int]:
    """The tokens of a reply, with that which ends a turn if the model has ended it."""
    text = reply.text() + ("" if reply.is_cut else END)
    return list(tokenizer.encode(text, add_special_tokens=False))


def learnt(ids: list[int], mask: list[int], tokenizer: Any) -> str:
    return str(tokenizer.decode([one for one, is_in in zip(ids, mask, strict=True) if is_in]))


# ------------------------------------------------------------------ SkyRL


def skyrl(run: TrainerRun) -> TrainerResult:
    """As its generator plays: `init`, `step` and `close` by a pool of threads."""
    from concurrent.futures import ThreadPoolExecutor

    skyrl_gym = importlib.import_module("skyrl_gym")
    from openenv.integrations.skyrl import register

    name = f"planted{run.address.rpartition(':')[2]}"
    register(name, environment=run.address, retries=0)

    async def play(case: TrainerCase) -> TrainerRollout:
        loop = asyncio.get_running_loop()
        extras = {**case.row, "max_turns": run.max_turns, "data_source": "planted"}
        prompt = extras.pop("prompt")
        env = skyrl_gym.make(name, env_config={}, extras=extras)
        said, _ = await loop.run_in_executor(pool, env.init, prompt)
        shown, reward, ends, turn = said[-1]["content"], 0.0, False, 0
        while not ends:
            reply = case.reply(turn)
            step = await loop.run_in_executor(pool, env.step, reply.text())
            reward, ends, turn = reward + step["reward"], step["done"], turn + 1
            shown += "".join(f"\n{one['content']}" for one in step["observations"])
        await loop.run_in_executor(pool, env.close)
        return TrainerRollout(reward, True, shown)

    with ThreadPoolExecutor(8) as pool:
        return TrainerResult(asyncio.run(side_by_side(run, play)))


# ------------------------------------------------------------------ verl


def verl(run: TrainerRun) -> TrainerResult:
    """As its worker plays: an agent loop that hydra makes for each sample."""
    import hydra  # type: ignore[import-not-found]
    import numpy as np
    from omegaconf import OmegaConf  # type: ignore[import-not-found]
    from tiny_models import CHATML, tokenizer_for
    from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]
        DictConfigWrap,
        ToolListWrap,
    )
    from verl.utils.dataset.rl_dataset import RLHFDataset  # type: ignore[import-not-found]
    from verl.workers.rollout.replica import TokenOutput  # type: ignore[import-not-found]

    tokenizer = tokenizer_for(["This is box 1, which is gray. Press press(1) press(2)"], CHATML)
    rollout = {
        "prompt_length": 2048,
        "response_length": 2048,
        "multi_turn": {"max_assistant_turns": run.max_turns},
    }
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    target = "openenv.integrations.verl.OpenEnvAgentLoop"
    registered = OmegaConf.create({"_target_": target, "environment": run.address, "retries": 0})

    class Server:
        """In place of verl's server of models."""

        async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Any:
            reply = reply_to(tokenizer.decode(prompt_ids), "<|im_start|>assistant")
            ids = written(reply, tokenizer)
            return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))

    async def play(case: TrainerCase) -> TrainerRollout:
        loop = hydra.utils.instantiate(
            config=registered,
            trainer_config=DictConfigWrap(config=config),
            server_manager=Server(),
            tokenizer=tokenizer,
            processor=None,
            hf_model_type="qwen2",
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap([]),
        )
        row = dict(case.row)
        prompt = np.array(row.pop("prompt"), dtype=object)
        output = await loop.run({"temperature": 1.0}, raw_prompt=prompt, **row)
        return TrainerRollout(
            output.reward_score,
            any(output.response_mask),
            tokenizer.decode(output.prompt_ids + output.response_ids),
            learnt(output.response_ids, output.response_mask, tokenizer),
        )

    return TrainerResult(asyncio.run(side_by_side(run, play)))


# ------------------------------------------------------------------ TRL


class VLLMServer:
    """Stands for the client of a vLLM server."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def generate(self, prompts: list[list[int]], n: int, **_: Any) -> dict[str, Any]:
        replies = []
        for ids in prompts:
            reply = reply_to(self.tokenizer.decode(ids), "<|im_start|>assistant")
            replies += [written(reply, self.tokenizer)] * n
        logprobs = [[[-0.5] for _ in one] for one in replies]
        return {"prompt_ids": prompts, "completion_ids": replies, "logprobs": logprobs}


def ask_server(trainer: Any, tokenizer: Any) -> None:
    """Have a trainer ask the server by TRL's own `VLLMGeneration`, without a vLLM."""
    from trl.generation.vllm_generation import VLLMGeneration

    generation = VLLMGeneration.__new__(VLLMGeneration)
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    for name in (*names, "structured_outputs_regex", "logprobs", "generation_kwargs"):
        setattr(generation, name, None)
    generation.accelerator, generation.mode = trainer.accelerator, "server"
    generation.max_completion_length = trainer.max_completion_length
    generation.vllm_client = VLLMServer(tokenizer)
    generation.sync_weights = lambda: None
    trainer.use_vllm, trainer.vllm_mode, trainer.vllm_generation = True, "server", generation
    trainer.vllm_importance_sampling_correction = False
    trainer._last_loaded_step = -1


class Noted:
    """A second reward function, by which no two rollouts of a group are worth the same.

    So the advantage of a rollout is 0 only where TRL has left it out.
    """

    __name__ = "noted"

    def __init__(self, of_each: int) -> None:
        self.of_each = of_each
        self.given: dict[str, Any] = {}

    def __call__(self, **given: Any) -> list[float]:
        self.given = given
        return [float(place % self.of_each) ** 2 for place in range(len(given["prompts"]))]


def trl(run: TrainerRun, by: str) -> TrainerResult:
    """A step of GRPOTrainer, in which each case is a group."""
    import tempfile

    from datasets import Dataset
    from tiny_models import model_for, tokenizer_for
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen2_5_chat_template

    from openenv.integrations.trl import (
        env_reward,
        environment_factory,
        rollout_func,
        skip_failures,
    )

    of_each = max([2, *(case.rollouts for case in run.cases)])
    noted = Noted(of_each)
    tokenizer = tokenizer_for([qwen2_5_chat_template, END], qwen2_5_chat_template, 600)
    played: dict[str, Any]
    if by == "rollout_func":
        rollouts = rollout_func(run.address, max_turns=run.max_turns, retries=0)
        played = {"rollout_func": rollouts, "reward_funcs": [env_reward, skip_failures(noted)]}
    elif by == "oumi":
        played = by_oumi(run)
        played["reward_funcs"].append(skip_failures(noted))
    else:
        factory = environment_factory(run.address, name="Planted", retries=0)
        played = {"environment_factory": factory, "reward_funcs": [skip_failures(noted)]}
    seen: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model_for(tokenizer, hidden=32, layers=1, positions=4096),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list([{"task_id": None} | case.row for case in run.cases]),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=of_each * len(run.cases),
                num_generations=of_each,
                max_completion_length=2048,
                max_tool_calling_iterations=run.max_turns - 1,
                max_steps=1,
                shuffle_dataset=False,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            **played,
        )
        ask_server(trainer, tokenizer)
        score = trainer._generate_and_score_completions

        def watched(inputs: Any) -> Any:
            seen.append(score(inputs))
            return seen[-1]

        trainer._generate_and_score_completions = watched
        trainer.train()
    return TrainerResult(rollouts_of(run, noted, seen[0], tokenizer))


def by_oumi(run: TrainerRun) -> dict[str, Any]:
    """What Oumi finds by names in its configuration, and gives to its trainer, which is TRL's."""
    from oumi.builders import (  # type: ignore[import-not-found]
        build_reward_functions,
        build_rollout_function,
    )
    from oumi.core.configs import TrainingParams  # type: ignore[import-not-found]

    from openenv.integrations.oumi import register

    params = TrainingParams()
    params.grpo.rollout_function = f"planted{run.address.rpartition(':')[2]}"
    params.reward_functions = ["openenv"]
    options: dict[str, Any] = {"max_turns": run.max_turns, "retries": 0}
    register(params.grpo.rollout_function, run.address, **options)
    return {
        "rollout_func": build_rollout_function(params),
        "reward_funcs": list(build_reward_functions(params)),
    }


def rollouts_of(
    run: TrainerRun, noted: Noted, batch: dict[str, Any], tokenizer: Any
) -> dict[str, list[TrainerRollout]]:
    found: dict[str, list[TrainerRollout]] = defaultdict(list)
    given = noted.given
    mask = batch["completion_mask"] * batch["tool_mask"]
    for place in range(len(given["prompts"])):
        case = run.cases[place // noted.of_each]
        if "env_messages" in given:
            reward, shown = given["env_reward"][place], given["env_messages"][place]
        else:
            reward = given["environments"][place].reward
            shown = [*given["prompts"][place], *given["completions"][place]]
        found[case.name].append(
            TrainerRollout(
                reward,
                bool(batch["advantages"][place] != 0),
                json.dumps(shown),
                learnt(batch["completion_ids"][place].tolist(), mask[place].tolist(), tokenizer),
            )
        )
    return found


# ------------------------------------------------------------------ Lightning Fabric


def lightning(run: TrainerRun) -> TrainerResult:
    """A step of GRPO, in which each case is a group."""
    import torch
    from lightning.fabric import Fabric  # type: ignore[import-not-found]
    from tiny_models import CHATML, model_for, tokenizer_for

    from openenv.integrations.lightning import GRPO, GRPOSettings

    tokenizer = tokenizer_for(["This is box 1, which is gray. Press press(1) press(2)"], CHATML)

    def generate(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        texts = map(tokenizer.decode, sequences)
        replies = [reply_to(text, "<|im_start|>assistant") for text in texts]
        return [written(reply, tokenizer) for reply in replies], None

    fabric = Fabric(accelerator="cpu", devices=1)
    model = model_for(tokenizer, hidden=32, layers=1, positions=4096)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    of_each = max([2, *(case.rollouts for case in run.cases)])
    settings = GRPOSettings(len(run.cases), of_each, max_turns=run.max_turns, retries=0)
    rows = [case.row for case in run.cases]
    grpo = GRPO(
        fabric, model, optimizer, tokenizer, run.address, settings, rows=rows, generate=generate
    )
    rollouts: list[Any] = []
    batches: list[Any] = []
    play, learn = grpo._player.play, grpo._learn

    def played(*given: Any, **more: Any) -> Any:
        rollouts.extend(play(*given, **more))
        return rollouts

    def learned(batch: Any, tokens: float) -> Any:
        batches.append(batch)
        return learn(batch, tokens)

    grpo._player.play = played  # type: ignore[method-assign]
    grpo._learn = learned  # type: ignore[method-assign]
    with grpo:
        grpo.step()
    found: dict[str, list[TrainerRollout]] = defaultdict(list)
    for place, one in enumerate(rollouts):
        weight = batches[0].weight[place] if batches else torch.zeros(1)
        ids = batches[0].ids[place][1:][weight > 0].tolist() if batches else []
        found[find_case(one.messages[0]["content"]).name].append(
            TrainerRollout(
                one.score.value,
                bool(weight.sum() > 0),
                json.dumps(one.messages),
                tokenizer.decode(ids),
            )
        )
    return TrainerResult(found)


# ------------------------------------------------------------------ by a server of models


def row_of(case: TrainerCase) -> tuple[str, dict[str, Any]]:
    """The words of a case's prompt, and the arguments of its reset."""
    row = dict(case.row)
    return row.pop("prompt")[0]["content"], row


def art(run: TrainerRun, acts: str = "tools") -> TrainerResult:
    """As ART gathers: a group for each case, whose exceptions are left out."""
    gatherer = importlib.import_module("art")
    from openenv.integrations.art import rollout

    model = gatherer.Model(
        name="toy",
        project="tests",
        inference_api_key="none",
        inference_base_url=f"{sys.argv[2]}/v1",
        inference_model_name="toy",
        report_metrics=[],
    )

    def group(case: TrainerCase) -> Any:
        prompt, reset = row_of(case)
        options: dict[str, Any] = {"max_turns": run.max_turns, "retries": 0, "acts": acts}
        return gatherer.TrajectoryGroup(
            rollout(model, run.address, reset=reset, prompt=prompt, **options)
            for _ in range(case.rollouts)
        )

    async def gathered() -> Any:
        return await gatherer.gather_trajectory_groups(
            [group(case) for case in run.cases], max_exceptions=1000, pbar_desc=None
        )

    found: dict[str, list[TrainerRollout]] = {}
    for case, its in zip(run.cases, asyncio.run(gathered()), strict=True):
        found[case.name] = [
            TrainerRollout(one.reward, True, json.dumps(one.messages(), default=str))
            for one in its.trajectories
        ]
        found[case.name] += [
            TrainerRollout(error=f"{one.type}: {one.message}") for one in its.exceptions
        ]
    return TrainerResult(found)


def verifiers(run: TrainerRun, acts: str = "tools") -> TrainerResult:
    """As it evaluates, and prime-rl trains: episodes with an error are left out."""
    import tempfile

    import verifiers.v1 as vf
    from verifiers.v1.utils import loaders

    os.environ["NO_KEY"] = "none"
    client = vf.EvalClientConfig(base_url=f"{sys.argv[2]}/v1", api_key_var="NO_KEY")
    model = vf.ModelContext("toy", client)

    async def play(config: dict[str, Any]) -> list[tuple[str, TrainerRollout]]:
        env = loaders.load_environment(loaders.resolve_env_config(config))
        async with env.serving():
            slots = [slot for task in env.taskset for slot in env.slots(task)]
            episodes = await asyncio.gather(*(env.run_slot(slot, model) for slot in slots))
        return [(one.task.data.name.partition("-")[0], told(one)) for one in episodes]

    def told(episode: Any) -> TrainerRollout:
        if not episode.ok:
            return TrainerRollout(error="; ".join(f"{e.type}: {e.message}" for e in episode.errors))
        (trace,) = episode.traces
        rewards = {name: one.score for name, one in trace.rewards.items()}
        shown = "\n".join(str(one.content) for one in trace.messages)
        return TrainerRollout(rewards.get("environment"), True, shown)

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for case in run.cases:
            for number in range(case.rollouts):
                prompt, reset = row_of(case)
                task = {"id": f"{case.name}-{number}", "prompt": prompt, "reset": reset}
                file.write(json.dumps(task) + "\n")
        file.flush()
        taskset = {"id": "verifiers_buttons", "environment": run.address, "tasks": file.name}
        config = {"taskset": taskset, "agent": {"max_turns": run.max_turns}, "acts": acts}
        played = asyncio.run(play({**config, "reset_retries": 0}))
    found: dict[str, list[TrainerRollout]] = defaultdict(list)
    for name, one in played:
        found[name].append(one)
    return TrainerResult(found)


def nemo_gym(run: TrainerRun) -> TrainerResult:
    """As `gym eval run` collects, with failures set aside; any other failure ends its run."""
    from trainers import nemo_gym_play

    from openenv.integrations.nemo_gym import dataset

    async def rows(cases: list[TrainerCase]) -> list[dict[str, Any]]:
        found = []
        for case in cases:
            prompt, reset = row_of(case)
            task = {"id": case.name, "prompt": prompt, "reset": reset}
            try:
                found += await dataset(run.address, [task])
            except Exception:  # its row is one of before the environment broke
                (row,) = await dataset(run.address, [{**task, "reset": {}}])
                row["responses_create_params"]["input"][0]["content"] = prompt
                row["openenv"] = {"reset": reset}
                found.append(row)
        return found

    cases = [case for case in run.cases for _ in range(case.rollouts)]
    env = {"environment": run.address, "on_failure": "set_aside", "reset_retries": 0}

    async def play() -> Any:
        asked = {"model": sys.argv[2], "server": "ours", "env": env, "rows": await rows(cases)}
        return await nemo_gym_play.main(asked)

    found: dict[str, list[TrainerRollout]] = defaultdict(list)
    error = None
    for case, told in zip(cases, asyncio.run(play()), strict=True):
        body = told["body"]
        if told["status"] != 200:
            error = error or f"status {told['status']}: {body}"
        elif "_ng_failure_class" in body:
            found[case.name].append(TrainerRollout(error=body["failure"]))
        else:
            said = json.dumps([told["row"]["responses_create_params"]["input"], body["response"]])
            found[case.name].append(TrainerRollout(body["reward"], True, said))
    return TrainerResult(found, error)


WAYS: dict[str, Callable[[TrainerRun], TrainerResult]] = {
    "art": art,
    "art by words": functools.partial(art, acts="words"),
    "environment_factory": functools.partial(trl, by="environment_factory"),
    "lightning": lightning,
    "nemo gym": nemo_gym,
    "oumi": functools.partial(trl, by="oumi"),
    "rollout_func": functools.partial(trl, by="rollout_func"),
    "skyrl": skyrl,
    "verifiers": verifiers,
    "verifiers by words": functools.partial(verifiers, acts="words"),
    "verl": verl,
}


def main(way: str, *_: str) -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # where trainers may print what they like
    for line in sys.stdin:
        try:
            played = WAYS[way](TrainerRun.from_data(json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            played = TrainerResult(error=f"{type(error).__name__}: {error}")
        answers.write(json.dumps(played.as_data()) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
