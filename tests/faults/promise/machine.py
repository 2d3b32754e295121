"""The promise of exactly once, as a state machine: what a caller may do, and what must come of it.

A schedule is a list of acts, drawn from a seed. Each act draws what it needs from a seed of its
own, so that a schedule without some of its acts plays the others as before: that is how one that
fails is made shorter.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from faults.promise.environment import Ask, Told, link
from faults.promise.players import GIVEN_UP, PLAYERS, GivingUp
from support.relay import Relay

from openenv import ConnectError, EnvironmentsFailed, SessionLost
from openenv.errors import (
    CapacityError,
    ExecutionFailed,
    FactoryFailed,
    ServerError,
    SessionBusy,
    SessionFailed,
)

PATIENCE = 25  # times that a call is asked again


class Broken(Exception):
    """The promise is broken."""


def insist(is_so: object, why: str) -> None:
    """Raise if the promise is broken."""
    if not is_so:
        raise Broken(why)


@dataclass
class Chain:
    """What a client knows of one environment.

    Attributes:
        instance: Its name.
        count: How many steps it has taken.
        value: The chain of them.
        is_there: An episode is under way.
        is_shown: It stands where its latest observation has shown it: it was not restored since.
    """

    instance: str = ""
    count: int = 0
    value: str = ""
    is_there: bool = False
    is_shown: bool = True


@dataclass
class Account:
    """What a schedule has asked for, to be compared with the ledger.

    Attributes:
        answered: Numbers of steps that were answered: each was taken once.
        asked: Numbers of steps that may have been taken, once.
        seeds: Seeds of resets that were answered.
        asked_seeds: Seeds of resets.
        losses: How often a session was lost.
        happened: Names of acts and faults.
    """

    answered: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    asked_seeds: list[int] = field(default_factory=list)
    losses: int = 0
    happened: list[str] = field(default_factory=list)


class Machine:
    """One client, its caller and its network.

    Args:
        url: The server.
        kind: Which client; see `players.PLAYERS`.
        first: The first of the numbers that are its own.
        is_lossy: The server, or its version of the protocol, may lose a session at any time.
        is_dying: The server has processes that a step may end.
    """

    def __init__(
        self, url: str, kind: str, first: int, *, is_lossy: bool = False, is_dying: bool = False
    ) -> None:
        self.is_dying = is_dying
        self.relay = Relay(url)
        self.is_lossy = is_lossy
        self.account = Account()
        self.next = first
        self.timers: list[threading.Timer] = []
        self.player = PLAYERS[kind](self.relay.url)
        self.chains = [Chain() for _ in range(self.player.count)]
        self.kept: tuple[bytes, int, str] | None = None  # a snapshot, and where it stands

    # ------------------------------------------------------------------ a call, until its answer

    def number(self) -> int:
        self.next += 1
        return self.next

    def reset(self, chance: random.Random, which: list[int] | None = None) -> None:
        """Begin episodes, however often that takes."""
        which = list(range(len(self.chains))) if which is None else which
        self.kept = None
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            seeds = {i: self.number() for i in which}
            self.account.asked_seeds += seeds.values()
            left = self._reset(seeds, chance)
            if not left:
                return
            which = left
            time.sleep(0.05)  # a server may be away, or its workers
        raise Broken("no reset comes to an end")

    def _reset(self, seeds: dict[int, int], chance: random.Random) -> list[int]:
        """Ask for the same resets until they are answered; return which are lost."""
        for i in seeds:
            self.chains[i].is_there = False
        tries, until = 0, time.monotonic() + AWAY_S
        while tries < PATIENCE or (self.is_dying and time.monotonic() < until):
            try:
                answers = self.player.call("reset", {"seeds": seeds}, self.giving_up(chance, 0.15))
            except GIVEN_UP:
                tries += 1
                continue
            except ConnectError:  # the network is away, or the server
                insist(time.monotonic() < until, "nobody can connect any more")
                time.sleep(0.05)
                continue
            except (SessionLost, SessionFailed, FactoryFailed, CapacityError) as error:
                self._note_loss("reset", error)
                return list(seeds)
            lost = []
            for i, seed in seeds.items():
                told = answers[i]
                if isinstance(told, GIVEN_UP):
                    if all(isinstance(one, GIVEN_UP) for one in answers.values()):
                        tries += 1
                        break
                    lost.append(i)
                elif isinstance(told, Exception):
                    insist(
                        isinstance(
                            told, SessionLost | SessionFailed | FactoryFailed | ConnectError
                        ),
                        repr(told),
                    )
                    self._note_loss("reset", told)
                    lost.append(i)
                else:
                    self._begun(i, seed, told)
            else:
                return lost
        raise Broken(f"a reset was not answered, though it was asked for {PATIENCE} times")

    def _begun(self, i: int, seed: int, told: Told) -> None:
        insist(told.number == seed, f"the reset with seed {seed} was answered by that of {told}")
        insist(told.count == 0 and told.chain == link("", seed), f"a new episode is {told}")
        self.account.seeds.append(seed)
        self.chains[i] = Chain(told.instance, 0, told.chain, is_there=True)

    def _note_loss(self, what: str, error: BaseException) -> None:
        self.account.losses += 1
        insist(self.is_lossy, f"a {what} lost its session without a cause: {error!r}")

    def step(self, chance: random.Random, asked: dict[int, Ask], trouble: float = 0.5) -> None:
        """Take a step: give it up, ask again, ask for something else; until it is answered."""
        numbers = {i: one.number for i, one in asked.items()}
        self.account.asked += numbers.values()
        give = trouble
        for _ in range(PATIENCE):
            options = {}
            giving_up = self.giving_up(chance, give)
            if giving_up is not None and giving_up.how == "deadline":
                options["timeout_s"] = giving_up.after_s
            try:
                answers = self.player.call("step", {"asked": asked, **options}, giving_up)
            except GIVEN_UP as error:
                self.account.happened.append(f"gave up by {type(error).__name__}")
                give = 0.3
                if self._do_something_else(chance):
                    return
                continue
            except (SessionLost, SessionFailed, ConnectError) as error:
                self._note_loss("step", error)
                self.reset(chance)
                return
            except ExecutionFailed:
                insist(all(one.fault == "raise" for one in asked.values()), "a step has failed")
                self.account.asked = [n for n in self.account.asked if n not in numbers.values()]
                return
            if self._taken(chance, numbers, answers):
                return
            give = 0.3
        raise Broken(f"step {numbers} was not answered, though it was asked for {PATIENCE} times")

    def _taken(
        self, chance: random.Random, numbers: dict[int, int], answers: dict[int, Any]
    ) -> bool:
        """Look at what was told of each; say whether the step is over."""
        given_up = [i for i, told in answers.items() if isinstance(told, GIVEN_UP)]
        if given_up and len(given_up) == len(answers):
            return False
        again = list(given_up)  # of several, those that were not answered begin anew
        for i, told in answers.items():
            if i in given_up:
                continue
            if isinstance(told, Exception):
                insist(isinstance(told, SessionLost | SessionFailed), f"{told!r}")
                self._note_loss("step", told)
                again.append(i)
                continue
            self.check(i, numbers[i], told)
        if again:
            self.reset(chance, again)
        return True

    def check(self, i: int, number: int, told: Told, chain: Chain | None = None) -> None:
        """See that what was told is what this step leads to, after all before it."""
        chain = chain or self.chains[i]
        expected = Told(
            instance=chain.instance,
            count=chain.count + 1,
            number=number,
            chain=link(chain.value, number),
        )
        for name in ("instance", "count", "number", "chain"):
            seen, wanted = getattr(told, name), getattr(expected, name)
            insist(seen == wanted, f"step {number}: {name} is {seen}, it should be {wanted}")
        chain.count, chain.value, chain.is_shown = told.count, told.chain, True
        self.account.answered.append(number)

    def _do_something_else(self, chance: random.Random) -> bool:
        """What a caller does who gave up a step; say whether that is over by it."""
        choice = chance.random()
        if choice < 0.2 and self.player.state is not None:
            self.account.happened.append("reading in between")
            return self.read_state(chance, pending=1)
        elif choice < 0.3 and self.player.refuses_another:
            self.account.happened.append("another step in between")
            other = {0: Ask(number=self.number())}
            try:
                answers = self.player.call("step", {"asked": other})
            except (SessionLost, SessionFailed, ConnectError):
                self.account.losses += 1
            # Only if the first was never sent can this one be the next.
            except GIVEN_UP:
                self.account.asked.append(other[0].number)
                self.reset(chance)
                return True
            else:
                self.account.asked.append(other[0].number)
                self.check(0, other[0].number, answers[0])
                return True
        elif choice < 0.4:
            self.account.happened.append("reset instead")
            self.reset(chance)
            return True
        return False

    def giving_up(self, chance: random.Random, share: float) -> GivingUp | None:
        """How the caller gives up, if it does."""
        if chance.random() > share:
            return None
        how = chance.choice(self.player.ways)
        after = chance.choice([chance.uniform(0, 0.004), chance.uniform(0, 0.09)])
        self.account.happened.append(how)
        if how == "none":
            return None
        return GivingUp(how, after, chance.randrange(0, 12), chance.choice([0.0, 0.03]))

    # ------------------------------------------------------------------ acts

    def act_step(self, chance: random.Random) -> None:
        """A step, with a fault of the network or without."""
        sleep_s = chance.choice(
            [0.0, 0.0, 0.0, chance.uniform(0, 0.06), LONG if chance.random() < 0.2 else 0]
        )
        if chance.random() < 0.35:
            fault = chance.choice(FAULTS)
            self.account.happened.append(fault.__name__)
            fault(self, chance)
        asked = {i: Ask(number=self.number(), sleep_s=sleep_s) for i in range(self.player.count)}
        self.step(chance, asked)

    def act_failing_step(self, chance: random.Random) -> None:
        """A step that the environment fails at: it is told, and costs nothing."""
        if self.player.count == 1 and type(self.player).__name__ != "Tools":
            self.step(chance, {0: Ask(number=self.number(), fault="raise")}, trouble=0.0)

    def act_exit(self, chance: random.Random) -> None:
        """A step that ends the process that it runs in, with all its sessions."""
        if not self.is_dying or self.account.happened.count("exit") > 1:
            return  # a server whose workers die and die lets them come back ever more slowly
        asked = {i: Ask(number=self.number(), fault="exit") for i in range(self.player.count)}
        for _ in range(PATIENCE):
            try:
                answers = self.player.call("step", {"asked": asked})
            except GIVEN_UP:
                continue
            except (SessionLost, SessionFailed, ConnectError):
                break
            insist(
                all(isinstance(told, Exception) for told in answers.values()),
                f"a step that ended its process was answered by {answers}",
            )
            break
        self.reset(chance)

    def act_hang(self, chance: random.Random) -> None:
        """A step that hangs; its caller gives it up by a deadline, and begins anew."""
        if "deadline" not in self.player.ways:
            return
        number = self.number()
        self.account.asked.append(number)
        asked = {0: Ask(number=number, sleep_s=HANG)}
        try:
            self.player.call("step", {"asked": asked, "timeout_s": 0.05})
        except GIVEN_UP:
            pass
        except (SessionLost, SessionFailed, ConnectError) as error:
            self._note_loss("step", error)
        else:
            raise Broken("a step that hangs was answered within its deadline")
        self.reset(chance)

    def act_reset(self, chance: random.Random) -> None:
        self.reset(chance)

    def read_state(self, chance: random.Random, pending: int = 0) -> bool:
        """Read the state; say whether a new episode had to be begun."""
        if "state" in self.player.lacks:
            return False
        try:
            counts = self.player.call("state", {}, self.giving_up(chance, 0.1))
        except (*GIVEN_UP, SessionBusy):  # a step that was given up still runs
            return False
        except (SessionLost, SessionFailed, ConnectError) as error:
            self._note_loss("state", error)
            self.reset(chance)
            return True
        for i, count in counts.items():
            chain = self.chains[i]
            most = chain.count + pending
            insist(chain.count <= count <= most, f"state tells {count} steps of {chain}")
        return False

    def act_state(self, chance: random.Random) -> None:
        self.read_state(chance)

    def act_render(self, chance: random.Random) -> None:
        if "render" in self.player.lacks or self.is_lossy:
            return
        try:
            drawn = self.player.call("render", {}, self.giving_up(chance, 0.2))
        except GIVEN_UP:
            return
        for i, text in drawn.items():
            if not isinstance(text, Exception):
                insist(text == self.chains[i].value, f"{text} is drawn of {self.chains[i]}")
            else:
                insist(isinstance(text, GIVEN_UP), repr(text))

    def act_view(self, chance: random.Random) -> None:
        """Ask for what a page shows, and which action a message is."""
        if not self.player.has_view or self.is_lossy:
            return
        view = self.player.call("view", {})
        shown = self.chains[0].value if self.chains[0].is_shown else None
        insist(view["html"] == shown, f"{view} is shown of {self.chains[0]}")
        insist(view["action"] == {"message": "a message"}, f"a message is the action of {view}")

    def act_snapshot(self, chance: random.Random) -> None:
        """Store an episode; or go back to it."""
        if "snapshot" in self.player.lacks or self.is_lossy:
            return
        chain = self.chains[0]
        try:
            if self.kept is None:
                data = self.player.call("snapshot", {}, self.giving_up(chance, 0.1))
                self.kept = (data, chain.count, chain.value)
                return
            data, count, value = self.kept
            for _ in range(PATIENCE):
                try:
                    told = self.player.call("restore", {"data": data}, self.giving_up(chance, 0.3))
                except GIVEN_UP:
                    continue
                insist(told[0] == count, f"an episode of {count} steps was restored as {told}")
                chain.count, chain.value, chain.is_shown = count, value, False
                return
            raise Broken("a restore was not answered")
        except GIVEN_UP:
            return

    def act_fork(self, chance: random.Random) -> None:
        """Fork the session: both go on by themselves."""
        if "fork" in self.player.lacks or self.is_lossy:
            return
        try:
            other = self.player.fork()
        except (*GIVEN_UP, ConnectError):  # the network may be away for new connections
            return
        try:
            number, chain = self.number(), self.chains[0]
            self.account.asked.append(number)
            try:
                told = other.call("step", {"asked": {0: Ask(number=number)}})[0]
            except GIVEN_UP:
                return
            copy = Chain(told.instance, chain.count, chain.value)
            insist(told.instance != chain.instance, "a fork is the session itself")
            self.check(0, number, told, copy)
        finally:
            other.close()

    def act_close(self, chance: random.Random) -> None:
        """Close the client and use it again: its episode is over."""
        try:
            self.player.close_and_go_on()
        except SessionLost as error:  # where the server was killed
            self._note_loss("close", error)
        try:
            self.player.call(
                "step", {"asked": {i: Ask(number=-9) for i in range(self.player.count)}}
            )
        except (SessionLost, ServerError, ConnectError):
            pass
        except EnvironmentsFailed:
            pass
        else:
            if self.player.count == 1 and not isinstance(self.player, PLAYERS["own"]):
                raise Broken("a client that was closed goes on with its episode")
        self.reset(chance)

    def act_drop(self, chance: random.Random) -> None:
        """Drop the client, and make another."""
        self.player.drop()
        self.reset(chance)

    def act_elsewhere(self, chance: random.Random) -> None:
        """Use the client from another thread, or another event loop."""
        if "elsewhere" in self.player.lacks:
            return
        numbers = {i: self.number() for i in range(self.player.count)}
        self.account.asked += numbers.values()
        asked = {i: Ask(number=number) for i, number in numbers.items()}
        for _ in range(PATIENCE):
            try:
                answers = self.player.elsewhere("step", {"asked": asked})
            except GIVEN_UP:
                continue
            except (SessionLost, SessionFailed, ConnectError) as error:
                self._note_loss("step", error)
                self.reset(chance)
                return
            if self._taken(chance, numbers, answers):
                return
        raise Broken("a step on another thread was not answered")

    def act_forked(self, chance: random.Random) -> None:
        """Fork the process."""
        if self.player.may_fork and not self.is_lossy:
            self.player.forked()

    def act_pickled(self, chance: random.Random) -> None:
        """Copy the client by pickle."""
        self.player.pickled()

    def play(self, acts: list[tuple[str, str]]) -> Account:
        """Play a schedule."""
        try:
            self.reset(random.Random(0))
            for name, seed in acts:
                if name != "exit" or self.is_dying:
                    self.account.happened.append(name)
                getattr(self, f"act_{name}")(random.Random(seed))
            return self.account
        finally:
            self.relay.release()
            self.player.close()
            if hasattr(self.player, "end"):
                self.player.end()
            for timer in self.timers:
                timer.cancel()
            self.relay.close()

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        timer = threading.Timer(delay_s, self._quietly, [call])
        timer.daemon = True
        self.timers.append(timer)
        timer.start()

    def _quietly(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(OSError):  # the schedule is over, and the relay closed
            call()


ACTS = {
    "step": 60,
    "failing_step": 3,
    "exit": 2,
    "hang": 2,
    "reset": 6,
    "state": 5,
    "render": 4,
    "view": 4,
    "snapshot": 5,
    "fork": 3,
    "close": 3,
    "drop": 3,
    "elsewhere": 4,
    "forked": 2,
    "pickled": 2,
}
LONG = 0.55  # longer than a client waits
HANG = 1.5
AWAY_S = 60.0  # that a network, a server or its workers are away at most


def schedule(seed: str, length: int) -> list[tuple[str, str]]:
    """Draw the acts of a schedule."""
    chance = random.Random(seed)
    names = chance.choices(list(ACTS), list(ACTS.values()), k=length)
    return [(name, f"{seed}/{place}") for place, name in enumerate(names)]


# ------------------------------------------------------------------ what happens to the network


def cut(machine: Machine, chance: random.Random) -> None:
    """The connection is cut."""
    machine.relay.cut()


def cut_soon(machine: Machine, chance: random.Random) -> None:
    """It is cut in a moment."""
    machine.later(chance.uniform(0, 0.05), machine.relay.cut)


def cut_at_a_byte(machine: Machine, chance: random.Random) -> None:
    """It is cut after so many bytes, one way or the other."""
    machine.relay.cut_after(chance.randrange(0, 400), upwards=chance.random() < 0.5)


def answers_lost(machine: Machine, chance: random.Random) -> None:
    """Answers are held back, and then lost with the connection."""
    machine.relay.hold()
    machine.later(chance.uniform(0, 0.5), machine.relay.cut_and_release)


def requests_lost(machine: Machine, chance: random.Random) -> None:
    """So are requests."""
    machine.relay.hold(upwards=True)
    machine.later(chance.uniform(0, 0.5), machine.relay.cut_and_release)


def stalls(machine: Machine, chance: random.Random) -> None:
    """Nothing passes for a while."""
    machine.relay.hold(upwards=chance.random() < 0.5)
    machine.later(chance.uniform(0, 0.6), machine.relay.release)


def half_open(machine: Machine, chance: random.Random) -> None:
    """The client's end is cut; the server is not told."""
    machine.relay.cut_near()


def away(machine: Machine, chance: random.Random) -> None:
    """The network is away for a while."""
    machine.relay.refuse()
    machine.relay.cut()
    machine.later(chance.uniform(0.02, 0.3), machine.relay.accept_again)


FAULTS = [cut, cut_soon, cut_at_a_byte, answers_lost, requests_lost, stalls, half_open, away]
