"""Chromium as an environment, with a browser context per session, driven by Playwright.

The bundled tasks have the form of MiniWoB (Shi et al. 2017, "World of Bits: An Open-Domain Platform
for Web-Based Agents", ICML). Their pages and graders are our own.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import anyio
from playwright.async_api import Error as PlaywrightError
from pydantic import ValidationError

from openenv.arrays import Picture
from openenv.environment import Environment, scored
from openenv.errors import NotSupported, Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    Answer,
    AnyAction,
    BrowserAction,
    BrowserObservation,
    BrowserOptions,
    BrowserState,
    BrowserTask,
    Evaluate,
    Wait,
)
from .acting import act, explained
from .chromium import BrowserGone, LaunchSettings, Lease
from .hosts import AllowedHosts, host_name
from .observing import look, take_screenshot
from .sites import Folder, Site
from .tasks import BUNDLED_TASKS, Task
from .taskset import SPLITS, TaskSet
from .window import ActionFailed, Window

__all__ = ["BrowserEnvironment"]

DEFAULT_TASK = "click-button"
STEPS_WITHOUT_TASK = 100
# The share of the caller's time limit for the action; the rest is for the observation.
SHARE_FOR_ACTING = 0.6
SLACK_S = 2.0

TASK, HOSTS = "BROWSER_TASK", "BROWSER_ALLOWED_HOSTS"


class BrowserEnvironment(Environment[AnyAction, BrowserObservation, BrowserState]):
    """A browser session: a task on bundled pages, or free browsing from an address.

    All sessions of an event loop share one browser process; each has cookies, storage and pages of
    its own. The process starts with the first reset, and ends when the last session closes. An
    action that fails does not raise: the observation's `error` has the reason, and the action
    counts as a step.

    With `deterministic`, which is the default, the seed and the actions determine the observations.
    The pages' clock stands still except for 0.1 s per step and the time of `Wait`, and the seed
    determines their random numbers. Screenshots are equal on the same machine with the same fonts.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", (0.0, 1.0), ("task",))

    def __init__(
        self,
        task: str | None = None,
        options: BrowserOptions | Mapping[str, Any] | None = None,
        *,
        sites: Mapping[str, str | os.PathLike[str]] | None = None,
        tasks: Sequence[type[Task]] = BUNDLED_TASKS,
        allow_javascript: bool = False,
        executable: str | None = None,
    ) -> None:
        super().__init__()
        self._tasks = TaskSet(tasks)
        self._default_task = task or os.environ.get(TASK) or DEFAULT_TASK
        self._tasks.id_of(self._default_task, Random())  # nosec B311  # refuses unknown tasks
        self._default = _with_hosts_from_environ(_options(BrowserOptions(), options), options)
        self._ceiling = AllowedHosts.of(self._default.allowed_hosts)
        self._folders: dict[str, Site] = {
            host_name(host): Folder(Path(directory)) for host, directory in (sites or {}).items()
        }
        self._allow_javascript = allow_javascript
        self._executable = executable
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: Lease | None = None
        self._window: Window | None = None
        self._task: Task | None = None
        self._state = BrowserState()

    # ------------------------------------------------------------------ episodes

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> BrowserObservation:  # type: ignore[override]
        """Raise `NotSupported`, because the environment needs an event loop; see `reset_async`."""
        raise NotSupported("a browser lives on an event loop: await reset_async()", feature="reset")

    def step(self, action: AnyAction) -> BrowserObservation:  # type: ignore[override]
        """Raise `NotSupported`, because the environment needs an event loop; see `step_async`."""
        raise NotSupported("a browser lives on an event loop: await step_async()", feature="step")

    async def reset_async(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | None = None,
        start_url: str | None = None,
        options: BrowserOptions | Mapping[str, Any] | None = None,
    ) -> BrowserObservation:
        """Start an episode in a browser context of its own.

        Args:
            seed: Determines the pages' random numbers, and the task's instance if `task` is a kind;
                any integer. None draws a seed.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task's id (``login/7``), its kind (``login``; the seed draws an instance of the
                train split), or a task of the task set. None uses the environment's own.
            start_url: Browse freely from this address, without a task and without rewards.
            options: Fields of `BrowserOptions` that differ in this episode.

        Raises:
            Refused: The task or an option is unknown, or the address may not be opened. The running
                episode continues.
            BrowserNotFound: There is no Chromium on this machine.
            BrowserNotStarted: Chromium did not start.
        """
        chosen, allowed = self._options_for(options)
        rng = Random(f"browser/{uuid.uuid4() if seed is None else seed}")  # nosec B311
        task_id = self._task_for(task, start_url, rng)
        instance = None if task_id is None else self._tasks.make(task_id)
        sites = self._sites_with(instance)
        self._loop = asyncio.get_running_loop()
        lease = await self._lease_for(allowed)
        try:
            window = await Window.open(lease, chosen, allowed, sites, rng.getrandbits(32))
            await self._begin(window, lease, instance.start_url if instance else start_url)
        except BaseException:
            if lease is not self._lease:
                await self._give_back(lease)
            raise
        with anyio.CancelScope(shield=True):
            await self._leave(lease)
        self._lease, self._window, self._task = lease, window, instance
        limit = chosen.max_steps or (instance.max_steps if instance else STEPS_WITHOUT_TASK)
        self._state = BrowserState(
            episode_id=episode_id or str(uuid.uuid4()),
            task=task_id,
            goal=instance.goal if instance else "",
            max_steps=limit,
            options=chosen.model_dump(mode="json"),
        )
        return await self._observe(window)

    async def step_async(  # type: ignore[override]  # no **kwargs: as above
        self, action: AnyAction, timeout_s: float | None = None
    ) -> BrowserObservation:
        """Carry out an action, wait until the pages are at rest, and observe them.

        Args:
            action: The action.
            timeout_s: Seconds that the caller waits. The action and the wait for the pages take at
                most three fifths of this time.

        Raises:
            Refused: No episode is running, or the action is not allowed. Nothing changes.
            BrowserGone: The browser has died. The episode is lost.
        """
        window = self._running_window()
        await self._check_browser()
        if isinstance(action, Evaluate) and not self._allow_javascript:
            raise Refused("evaluate is not allowed here: the server does not allow JavaScript")
        self._state.step_count += 1
        window.begin_step()
        error, extracted = await self._carry_out(window, action, timeout_s)
        window.raise_fault()
        observation = await self._observe(window)
        return self._judged(action, observation, error, extracted)

    @property
    def state(self) -> BrowserState:
        """The state of the episode."""
        return self._state

    async def render(self) -> Picture:
        """Return a screenshot of the active tab.

        Raises:
            Refused: There is nothing to show, or the browser has died.
        """
        tab = None if self._window is None else self._window.active_tab
        if tab is None or not tab.is_live:
            raise Refused("there is nothing to show: no page is open")
        await self._check_browser()
        try:
            return Picture("image/png", await take_screenshot(tab))
        except PlaywrightError as error:
            raise Refused(f"the page cannot be shown: {error.message.splitlines()[0]}") from error

    async def close_async(self) -> None:
        """Close the session's pages; the last session closes the browser. Safe to repeat."""
        with anyio.CancelScope(shield=True):
            await self._leave(None)

    def close(self) -> None:
        """Schedule `close_async` on the event loop, without waiting for the result."""
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.close_async(), self._loop)

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[BrowserTask]:
        """Return every task of a split.

        Raises:
            Refused: The split is unknown.
        """
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: The split is unknown.
        """
        return len(self._tasks.ids(split))

    def get_task(self, split: str, index: int) -> BrowserTask:
        """Return one task.

        Raises:
            Refused: The split is unknown.
            IndexError: The index is negative, or the split has fewer tasks.
        """
        return self._tasks.describe(self._tasks.ids(split)[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[BrowserTask]:
        """Return the tasks of the slice ``[start:stop]``.

        Raises:
            Refused: The split is unknown.
        """
        return [self._tasks.describe(one) for one in self._tasks.ids(split)[start:stop]]

    # ------------------------------------------------------------------ start of an episode

    def _options_for(
        self, given: BrowserOptions | Mapping[str, Any] | None
    ) -> tuple[BrowserOptions, AllowedHosts]:
        chosen = _options(self._default, given)
        allowed = AllowedHosts.of(chosen.allowed_hosts)
        if not self._ceiling.cover(allowed):
            known = ", ".join(self._ceiling.patterns) or "none"
            raise Refused(
                f"allowed_hosts is {', '.join(allowed.patterns)}, and this server lets in {known}; "
                "an episode may narrow that, and not widen it"
            )
        return chosen, allowed

    def _task_for(
        self, task: str | Mapping[str, Any] | None, start_url: str | None, rng: Random
    ) -> str | None:
        if start_url is None:
            return self._tasks.id_of(self._default_task if task is None else task, rng)
        if task is not None:
            raise Refused("give task or start_url, and not both: a task begins at its own page")
        return None

    def _sites_with(self, task: Task | None) -> dict[str, Site]:
        return self._folders if task is None else {**self._folders, task.host(): task}

    async def _lease_for(self, allowed: AllowedHosts) -> Lease:
        """Return a lease of a browser for these hosts, the current one if it fits."""
        settings = LaunchSettings(allowed.resolver_rules, self._executable)
        lease = self._lease
        if lease is not None and lease.settings == settings:
            with suppress(BrowserGone):
                await lease.check()
                return lease
        return await Lease.take(settings)

    async def _begin(self, window: Window, lease: Lease, url: str | None) -> None:
        """Open the first page of an episode."""
        assert url is not None
        try:
            why = window.why_refused(url)
            if why is not None:
                raise Refused(f"start_url cannot be opened: {why}")
            await window.page.goto(
                url, wait_until="commit", timeout=window.options.load_timeout_s * 1000
            )
            await window.settle(window.options.load_timeout_s)
            window.raise_fault()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await window.close()
            if isinstance(error, PlaywrightError):
                await lease.check()
                why = error.message.splitlines()[0]
                raise Refused(f"the first page {url[:200]!r} cannot be opened: {why}") from error
            raise

    async def _leave(self, lease: Lease | None) -> None:
        """Close the last episode's window, and release its browser unless it is `lease`."""
        window, self._window = self._window, None
        if window is not None:
            await window.close()
        if self._lease is not None and self._lease is not lease:
            old, self._lease = self._lease, None
            await self._give_back(old)

    async def _give_back(self, lease: Lease) -> None:
        with anyio.CancelScope(shield=True):
            await lease.release()

    # ------------------------------------------------------------------ stepping

    def _running_window(self) -> Window:
        if self._window is None:
            raise Refused("step() was called before reset(): no page is open")
        if self._state.is_done:
            raise Refused("step() was called after done: the episode is over, call reset()")
        return self._window

    async def _check_browser(self) -> None:
        """Raise `BrowserGone` if the browser has died, because observations would be wrong."""
        if self._lease is None:
            raise BrowserGone
        await self._lease.check()

    async def _carry_out(
        self, window: Window, action: BrowserAction, timeout_s: float | None
    ) -> tuple[str, list[str] | None]:
        """Carry out an action and wait for the pages.

        Returns:
            The reason why the action failed, or an empty text; and the text that it read.
        """
        options = window.options
        own_limit = options.action_timeout_s + options.load_timeout_s + SLACK_S
        own_limit += action.seconds if isinstance(action, Wait) else 0.0
        limit = own_limit if timeout_s is None else min(own_limit, timeout_s * SHARE_FOR_ACTING)
        until = anyio.current_time() + limit
        error, extracted = "", None
        with anyio.move_on_after(limit) as scope:
            try:
                extracted = await act(window, action)
            except ActionFailed as failure:
                error = str(failure)
            except PlaywrightError as failure:
                await self._check_browser()
                error = explained(failure, action)
        if scope.cancelled_caught:
            error = f"{action.kind} did not come back within {limit:.3g} s"
        await window.settle(min(options.load_timeout_s, max(0.0, until - anyio.current_time())))
        return error, extracted

    async def _observe(self, window: Window) -> BrowserObservation:
        try:
            sight = await look(window)
        except PlaywrightError:
            await self._check_browser()
            raise
        await self._check_browser()
        self._state.url = sight.fields.get("url", "")
        self._state.blocked_hosts = dict(window.blocked_hosts)
        return BrowserObservation(
            goal=self._state.goal,
            events=window.events,
            events_left_out=window.events_left_out,
            cut=sight.cut,
            **sight.fields,
        )

    def _judged(
        self,
        action: BrowserAction,
        observation: BrowserObservation,
        error: str,
        extracted: list[str] | None,
    ) -> BrowserObservation:
        """Add the outcome of a step to the observation after it, and score it."""
        task, is_answer = self._task, isinstance(action, Answer)
        score = None if task is None else task.score
        if task is not None and score is None and isinstance(action, Answer):
            score = task.judge(action.text)
        is_over = score is not None or is_answer
        is_cut_off = not is_over and self._state.step_count >= self._state.max_steps
        self._state.is_done = is_over or is_cut_off
        observation.error, observation.extracted = error, extracted
        observation.done, observation.truncated = self._state.is_done, is_cut_off
        if task is None:
            return observation
        return scored(observation, 0.0 if score is None else Score(score, {"task": score}))


def _options(
    default: BrowserOptions, given: BrowserOptions | Mapping[str, Any] | None
) -> BrowserOptions:
    """Return the default options with the given fields."""
    if given is None:
        return default
    if isinstance(given, BrowserOptions):
        given = given.model_dump(exclude_unset=True)
    if not isinstance(given, Mapping):
        raise Refused(f"options is a {type(given).__name__}; expected fields of BrowserOptions")
    try:
        return BrowserOptions.model_validate({**default.model_dump(), **given})
    except ValidationError as error:
        raise Refused(f"options: {_told(error)}") from None


def _told(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}, got {one['input']!r:.100}"
        for one in error.errors()
    )


def _with_hosts_from_environ(
    options: BrowserOptions, given: BrowserOptions | Mapping[str, Any] | None
) -> BrowserOptions:
    names = given.model_fields_set if isinstance(given, BrowserOptions) else given or ()
    listed = os.environ.get(HOSTS, "")
    if "allowed_hosts" in names or not listed.strip():
        return options
    hosts = tuple(host.strip() for host in listed.split(",") if host.strip())
    return options.model_copy(update={"allowed_hosts": hosts})
