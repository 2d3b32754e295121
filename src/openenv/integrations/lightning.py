"""GRPO in any environment with Lightning Fabric (https://lightning.ai/docs/fabric), in your loop.

    fabric = Fabric(devices=2)
    fabric.launch()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-6))
    with GRPO(fabric, model, optimizer, tokenizer, "blackjack", prompt="Play a hand.") as grpo:
        for step in grpo.steps(300):
            fabric.log_dict(step.as_logs(), step.number)

Each process plays its own rollouts; gradients and figures cover all processes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from openenv._internal.packages import needs
from openenv.integrations.transformers import end_tokens, sampler
from openenv.integrations.trl.environments import Columns, episode_arguments
from openenv.rewards.credit import group_advantages
from openenv.rollouts.batched import BatchPlayer, Generate
from openenv.rollouts.beginnings import Beginnings, digest_of
from openenv.rollouts.episode_sessions import EpisodeStart, Unfinished
from openenv.rollouts.jobs import derived_seed
from openenv.rollouts.meter import Meter, StepCost
from openenv.rollouts.policies.conversations import prompt_messages
from openenv.rollouts.tokens import Chat, ChatTokenizer, TokenRollout

with needs("openenv.integrations.lightning", "pip install lightning transformers"):
    import torch  # pyright: ignore[reportMissingImports]

__all__ = ["GRPO", "GRPOSettings", "GRPOStep"]

# Fabric strategies that split the model over processes, so that no process can sample alone.
SHARDED = frozenset(
    {"DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy", "XLAFSDPStrategy"}
)


@dataclass(frozen=True)
class GRPOSettings:
    """Settings of a step of GRPO.

    Attributes:
        groups: Number of groups in a step, on each process.
        generations: Number of rollouts in a group, which are compared with each other; at least 2.
        max_turns: Maximum number of replies in a rollout.
        max_tokens: Maximum number of tokens after a prompt. Default: no limit.
        reply_tokens: Maximum number of tokens in a reply.
        temperature: Sampling temperature, greater than 0.
        epochs: Number of passes over a step's rollouts; each pass updates the weights once.
        micro_batch: Number of rollouts in one forward and backward pass. Default: all.
        clip_low: The ratio of a token's probabilities is clipped below 1 - `clip_low`.
        clip_high: The ratio of a token's probabilities is clipped above 1 + `clip_high` (Yu et al.
            2025, "DAPO").
        max_grad_norm: Maximum norm of the gradients, which are clipped to it. None: no clipping.
        is_scaled: Divide advantages by the standard deviation of their group.
        unfinished: Reward of an episode that the model has not finished.
        retries: Further attempts at a reset after a passing failure.
        failures_in_a_row: End training after this many failed rollouts in a row. None: never.

    Raises:
        ValueError: A value is out of range.
    """

    groups: int = 8
    generations: int = 8
    max_turns: int = 32
    max_tokens: int | None = None
    reply_tokens: int = 256
    temperature: float = 1.0
    epochs: int = 1
    micro_batch: int | None = None
    clip_low: float = 0.2
    clip_high: float = 0.2
    max_grad_norm: float | None = 1.0
    is_scaled: bool = True
    unfinished: Unfinished = "earned"
    retries: int = 2
    failures_in_a_row: int | None = 32

    def __post_init__(self) -> None:
        at_least = {"groups": 1, "generations": 2, "epochs": 1, "micro_batch": 1, "max_turns": 1}
        at_least |= {"max_tokens": 1, "reply_tokens": 1}
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}; expected at least {least}")
        for name in ("temperature", "clip_low", "clip_high", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value}; expected more than 0")


@dataclass(frozen=True)
class GRPOStep:
    """The result of a step.

    Attributes:
        number: The number of the step, from 1.
        reward: Mean of the known rewards of all processes; None if no reward is known.
        reward_std: Mean of the rewards' standard deviations within groups, on this process.
        rollouts: Number of rollouts of all processes.
        unscored: Number of rollouts of all processes without a reward, which are left out.
        loss: Loss of the last epoch; None if the weights were not updated.
        grad_norm: Gradient norm of the last epoch before clipping; None without clipping or update.
        clipped: Fraction of the last epoch's tokens whose ratio was clipped, from 0 to 1.
        turns: Mean number of replies in a rollout, on this process.
        cost: Time, tokens and use of environments, on this process.
    """

    number: int
    reward: float | None
    reward_std: float
    rollouts: int
    unscored: int
    loss: float | None
    grad_norm: float | None
    clipped: float
    turns: float
    cost: StepCost

    def as_logs(self) -> dict[str, float]:
        """Return the figures for loggers, except those that are None."""
        known = {
            "reward": self.reward,
            "reward_std": self.reward_std,
            "rollouts": self.rollouts,
            "unscored": self.unscored,
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "clipped": self.clipped,
            "turns": self.turns,
            "seconds": self.cost.seconds,
            "tokens": self.cost.tokens,
        }
        return {
            **{name: one for name, one in known.items() if one is not None},
            **self.cost.as_logs(),
        }

    def __str__(self) -> str:
        reward = "no reward" if self.reward is None else f"reward {self.reward:+.3f}"
        unscored = f", {self.unscored} unscored" if self.unscored else ""
        return f"{reward}{unscored}; {self.cost}"


class GRPO:
    """Group relative policy optimization (Shao et al. 2024, "DeepSeekMath"), one step at a time.

    The environment gives the rewards. The loss is the mean over all tokens that the model wrote, on
    all processes (Yu et al. 2025, "DAPO"), without a KL term for the divergence from a reference
    model. An unscored rollout does not count in its group.

    ``fabric.save`` and ``fabric.load`` call `state_dict` and `load_state_dict` to resume training:
    ``fabric.save(path, {"model": model, "optimizer": optimizer, "grpo": grpo})``.

    Args:
        fabric: A launched `lightning.fabric.Fabric`.
        model: A causal language model of transformers, as returned by ``fabric.setup``.
        optimizer: The optimizer, as returned by ``fabric.setup``.
        tokenizer: The model's tokenizer, which needs a chat template.
        environment: The environment, as `openenv.rollout` takes it. Each process has its own
            sessions.
        settings: The settings of a step.
        prompt: The user's message, if there are no rows.
        rows: Rows of a dataset, such as `openenv.integrations.trl.task_dataset` makes: a ``prompt``
            (a text or messages), and columns that are arguments of the environment's reset. They
            are visited in a random order, reshuffled each epoch. Without rows, each group gets a
            seed.
        columns: The columns to use. Default: all.
        told: How the model is told how to act; see `openenv.rollouts.tokens.Chat`.
        generate: Function that asks the model for replies, such as from a model server. Default:
            sample from `model` in this process.
        seed: The seed from which episodes' seeds and the order of rows are derived.
        template: Further arguments of the chat template, such as ``enable_thinking``.
        shows: Observation fields that the model sees, in this order. Default: all public fields.
        equal_beginnings: Give a seed to each group whose row has none, and raise
            `UnequalBeginnings` if two rollouts of a group begin differently. If False, beginnings
            are left to chance.

    Attributes:
        number: The number of the last step; 0 before the first.
        meter: The costs of this process's environments.

    Raises:
        NotImplementedError: The strategy shards the model, and there is no `generate`.
        OpenEnvError: The environment cannot be reached, or does not say how to act in it.
        TypeError: `environment` is not an environment.
        ValueError: There is neither a prompt nor a row, the tokenizer has no chat template, or
            `shows` names a field that observations do not have.
    """

    def __init__(
        self,
        fabric: Any,
        model: Any,
        optimizer: Any,
        tokenizer: ChatTokenizer,
        environment: Any,
        settings: GRPOSettings | None = None,
        *,
        prompt: str = "",
        rows: Sequence[Mapping[str, Any]] | None = None,
        columns: Columns | None = None,
        told: Any = None,
        generate: Generate | None = None,
        seed: int = 0,
        template: Mapping[str, Any] | None = None,
        shows: Sequence[str] | None = None,
        equal_beginnings: bool = True,
    ) -> None:
        self.number = 0
        self._settings = settings or GRPOSettings()
        self._fabric, self._model, self._optimizer = fabric, model, optimizer
        self._seed = seed
        self._prompt = prompt
        self._rows: list[EpisodeStart] | None = None
        if rows is not None:
            self._rows = [
                EpisodeStart(prompt_messages(row["prompt"]), *episode_arguments(row, columns))
                for row in rows
            ]
        if not (self._rows or (prompt and self._rows is None)):
            raise ValueError("what is the model told? give a prompt, or rows with one each")
        self._generate = generate or self._sampler(tokenizer)
        self._player = BatchPlayer(
            environment,
            max_turns=self._settings.max_turns,
            unfinished=self._settings.unfinished,
            retries=self._settings.retries,
            failures_in_a_row=self._settings.failures_in_a_row,
            shows=shows,
            lockstep=True,  # so that training is reproducible, also from a checkpoint
        )
        self.meter: Meter = self._player.meter
        self._gives_seeds = equal_beginnings
        self._beginnings = Beginnings(self._player.sessions.name, is_on=equal_beginnings)
        try:
            ends = () if generate else end_tokens(model.module, tokenizer)
            self._chat = Chat(
                tokenizer, self._player.sessions.interface, told, ends=ends, **(template or {})
            )
        except BaseException:
            self._player.close()
            raise

    def steps(self, until: int) -> Iterator[GRPOStep]:
        """Train until step number `until`; yield the result of each step.

        Raises:
            CapacityError: The server has too few slots for the rollouts of a step.
            EnvironmentsFailing: Too many rollouts in a row have failed.
            OpenEnvError: The environment cannot be reset with these arguments.
            UnequalBeginnings: Two rollouts of a group have begun differently.
        """
        while self.number < until:
            yield self.step()

    def step(self) -> GRPOStep:
        """Play a batch of rollouts and update the weights. Raises the same errors as `steps`."""
        began, before = time.perf_counter(), self.meter.read()
        settings, number = self._settings, self.number + 1
        starts = self._starts(number)
        rollouts = self._player.play(
            self._chat, starts, self._generate, max_tokens=settings.max_tokens
        )
        self._beginnings.forget()  # a group is played by one process
        for start, rollout in zip(starts, rollouts, strict=True):
            if rollout.shown_first is not None:
                self._beginnings.saw(digest_of(start.arguments), rollout.shown_first)
        rewards = [one.score.value for one in rollouts]
        batch = _TensorBatch.of(
            rollouts,
            group_advantages(rewards, settings.generations, is_scaled=settings.is_scaled),
            self._fabric.device,
        )
        known = [one for one in rewards if one is not None]
        reward, scored, tokens, played = self._sum(
            sum(known), len(known), batch.weight.sum(), len(rollouts)
        )
        learnt = self._learn(batch, tokens) if tokens else _Learnt()
        self.number = number
        return GRPOStep(
            number=number,
            reward=reward / scored if scored else None,
            reward_std=_spread(rewards, settings.generations),
            rollouts=int(played),
            unscored=int(played - scored),
            loss=learnt.loss,
            grad_norm=learnt.grad_norm,
            clipped=learnt.clipped,
            turns=statistics.fmean(one.turns for one in rollouts),
            cost=StepCost(
                step=number,
                seconds=time.perf_counter() - began,
                tokens=sum(len(one.ids) for one in rollouts),
                environments=self.meter.read() - before,
            ),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of training."""
        return {"number": self.number}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self.number = int(state["number"])

    def close(self) -> None:
        """Close every session; called at interpreter exit too."""
        self._player.close()

    def __enter__(self) -> GRPO:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -------------------------------------------------------------- rollouts

    def _starts(self, number: int) -> list[EpisodeStart]:
        """Return the starts of a step's rollouts on this process, alike within a group."""
        of_process, processes = self._settings.groups, self._fabric.world_size
        first = ((number - 1) * processes + self._fabric.global_rank) * of_process
        starts = [self._start(first + group) for group in range(of_process)]
        return [start for start in starts for _ in range(self._settings.generations)]

    def _start(self, group: int) -> EpisodeStart:
        if self._rows is None:
            told = [{"role": "user", "content": self._prompt}]
            return EpisodeStart(told, {"seed": derived_seed(self._seed, "train", group)})
        epoch, place = divmod(group, len(self._rows))
        order = list(range(len(self._rows)))
        random.Random(derived_seed(self._seed, "rows", epoch)).shuffle(order)  # nosec B311
        start = self._rows[order[place]]
        if not self._gives_seeds or "seed" in start.arguments:
            return start
        seed = derived_seed(self._seed, "train", group)
        return replace(start, arguments={**start.arguments, "seed": seed})

    def _sampler(self, tokenizer: Any) -> Generate:
        strategy = type(self._fabric.strategy)
        if any(one.__name__ in SHARDED for one in strategy.__mro__):
            raise NotImplementedError(
                f"{strategy.__name__} gives no process the whole model, so that none can sample "
                "from it here; pass generate=, which asks a server of models, or use ddp"
            )
        sample = sampler(
            self._model.module,  # the bare model, since processes sample at their own pace
            tokenizer,
            max_tokens=self._settings.reply_tokens,
            temperature=self._settings.temperature,
        )

        def generate(sequences: list[list[int]]) -> Any:
            with self._fabric.autocast():
                return sample(sequences)

        return generate

    # -------------------------------------------------------------- updates

    def _learn(self, batch: _TensorBatch, tokens: float) -> _Learnt:
        """Update the weights with a step's rollouts.

        Args:
            tokens: Number of tokens with weight 1, of all processes.
        """
        settings = self._settings
        self._model.train()
        parts = batch.parts(settings.micro_batch)
        before: list[Any] = [None] * len(parts)
        if settings.epochs > 1:
            with torch.no_grad():
                before = [self._logprobs(part) for part in parts]
        learnt = _Learnt()
        for _ in range(settings.epochs):
            loss = clipped = 0.0
            for place, (part, old) in enumerate(zip(parts, before, strict=True)):
                is_last = place == len(parts) - 1
                with self._fabric.no_backward_sync(self._model, enabled=not is_last):
                    value, outside = self._loss(part, old)
                    # Fabric averages gradients over processes; this gives the mean over tokens.
                    self._fabric.backward(value * (self._fabric.world_size / tokens))
                loss += value.item()
                clipped += outside.item()
            norm = None
            if settings.max_grad_norm is not None:
                norm = self._fabric.clip_gradients(
                    self._model, self._optimizer, max_norm=settings.max_grad_norm
                ).item()
            self._optimizer.step()
            self._optimizer.zero_grad()
            loss, clipped = self._sum(loss, clipped)
            learnt = _Learnt(loss / tokens, norm, clipped / tokens)
        return learnt

    def _loss(self, part: _TensorBatch, old: Any) -> tuple[Any, Any]:
        """Return the sum over tokens of GRPO's loss, and the number of clipped tokens."""
        settings = self._settings
        logprobs = self._logprobs(part)
        ratio = (logprobs - (logprobs.detach() if old is None else old)).exp()
        advantage = part.advantage[:, None]
        near = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        gained = torch.minimum(ratio * advantage, near * advantage)
        outside = ((ratio * advantage) > (near * advantage)) * part.weight
        return -(gained * part.weight).sum(), outside.sum()

    def _logprobs(self, part: _TensorBatch) -> Any:
        """Return log-probabilities of all tokens except the first: (rollouts, length - 1)."""
        found = self._model(input_ids=part.ids, attention_mask=part.mask, use_cache=False)
        logits = found.logits[:, :-1].float() / self._settings.temperature
        chosen = logits.gather(-1, part.ids[:, 1:, None]).squeeze(-1)
        return chosen - logits.logsumexp(-1)

    def _sum(self, *values: Any) -> list[float]:
        here = torch.tensor([float(one) for one in values], dtype=torch.float64)
        if self._fabric.world_size == 1:
            return here.tolist()  # type: ignore[no-any-return,unused-ignore]
        # Every device can reduce float32, which is enough for counts and sums of rewards.
        found = self._fabric.all_reduce(here.float().to(self._fabric.device), reduce_op="sum")
        return found.tolist()  # type: ignore[no-any-return,unused-ignore]


@dataclass(frozen=True)
class _Learnt:
    """The result of an update of the weights."""

    loss: float | None = None
    grad_norm: float | None = None
    clipped: float = 0.0


@dataclass(frozen=True)
class _TensorBatch:
    """Rollouts as tensors.

    Attributes:
        ids: Tokens, padded on the right: (rollouts, length).
        mask: 1 for tokens, 0 for padding: (rollouts, length).
        weight: For each token except the first, 1.0 if the model wrote the token and its rollout
            has a reward, else 0.0: (rollouts, length - 1).
        advantage: Advantage of each rollout: (rollouts,).
    """

    ids: Any
    mask: Any
    weight: Any
    advantage: Any

    @classmethod
    def of(
        cls, rollouts: Sequence[TokenRollout], advantages: Sequence[float], device: Any
    ) -> _TensorBatch:
        longest = max(len(one.ids) for one in rollouts)
        ids = torch.zeros((len(rollouts), longest), dtype=torch.long)
        mask, weight = torch.zeros_like(ids), torch.zeros((len(rollouts), longest))
        for row, one in enumerate(rollouts):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            mask[row, : len(one.ids)] = 1
            if one.score.value is not None:
                weight[row, len(one.prompt_ids) : len(one.ids)] = torch.tensor(one.mask).float()
        advantage = torch.tensor(advantages, dtype=torch.float32)
        return cls(*(one.to(device) for one in (ids, mask, weight[:, 1:], advantage)))

    def parts(self, size: int | None) -> list[_TensorBatch]:
        """Split the batch into parts of at most `size` rollouts; None means a single part."""
        split = [one.split(size or len(one)) for one in vars(self).values()]
        return [_TensorBatch(*one) for one in zip(*split, strict=True)]


def _spread(rewards: Sequence[float | None], size: int) -> float:
    """Return the mean of the standard deviations within groups of at least two rewards."""
    groups = (rewards[at : at + size] for at in range(0, len(rewards), size))
    known = [[one for one in group if one is not None] for group in groups]
    return statistics.fmean([statistics.stdev(one) for one in known if len(one) > 1] or [0.0])
