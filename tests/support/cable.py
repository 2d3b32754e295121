"""A cable to another host, as far as the network can tell, that can be pulled: a namespace."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

NETWORK = "10.213.{}.{}"
CLONE_NEWNET = 0x40000000  # of <linux/sched.h>


def can_be_laid() -> bool:
    """Whether this machine lets network namespaces be made (root, and iproute2)."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"openenv-try-{os.getpid()}"
    if _ip("netns", "add", name, check=False):
        return False
    _ip("netns", "delete", name)
    return True


def _ip(*arguments: str, check: bool = True) -> int:
    done = subprocess.run(["ip", *arguments], check=check, capture_output=True)
    return done.returncode


class Cable:
    """A cable between this host, at `here`, and another one.

    Attributes:
        here: The address of this host's end, which nobody else reaches.
    """

    def __init__(self, number: int) -> None:
        self._name = f"openenv-{number}"
        self._near, self._far = f"oe{number}a", f"oe{number}b"
        subnet = number % 250 + 1
        self.here, self._there = NETWORK.format(subnet, 1), NETWORK.format(subnet, 2)

    def lay(self) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
        _ip("link", "set", self._far, "netns", self._name)
        _ip("address", "add", f"{self.here}/30", "dev", self._near)
        _ip("link", "set", self._near, "up")
        _ip("-n", self._name, "address", "add", f"{self._there}/30", "dev", self._far)
        _ip("-n", self._name, "link", "set", self._far, "up")

    def start_there(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program on the other host."""
        there = ["ip", "netns", "exec", self._name, *command]
        return subprocess.Popen(there, stdout=subprocess.PIPE, text=True)

    def pull(self) -> None:
        """From now on every packet is lost, and nobody is told."""
        _ip("-n", self._name, "link", "set", self._far, "down")

    def plug_in(self) -> None:
        _ip("-n", self._name, "link", "set", self._far, "up")

    def remove(self) -> None:
        _ip("netns", "delete", self._name, check=False)
        _ip("link", "delete", self._near, check=False)


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """Lay a cable until the block ends.

    Meanwhile this thread, and those that it starts, are in a network of their own: when the
    addresses of the machine change, a browser on it drops what it is loading.
    """
    cable = Cable(os.getpid() % 10_000)
    with _own_network():
        try:
            cable.lay()
            yield cable
        finally:
            cable.remove()


@contextlib.contextmanager
def _own_network() -> Iterator[None]:
    with open("/proc/thread-self/ns/net", "rb") as before:  # os.unshare is new in Python 3.12
        _call("unshare", CLONE_NEWNET)
        try:
            _ip("link", "set", "lo", "up")
            yield
        finally:
            _call("setns", before.fileno(), CLONE_NEWNET)


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), name)
