"""A bash at a terminal in a sandbox: its input, its output and its position at the prompt."""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections.abc import Callable

from openenv.errors import SandboxFileError
from openenv.sandbox import Running, Sandbox

from ..keys import encode_key
from .marks import Back, Began, Marks, Ready
from .text import Excerpt, to_plain_text

__all__ = ["Shell", "NoShell"]

COMMAND = ["/bin/bash", "--noprofile", "--norc", "-i"]
START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0
GRACE_S = 1.0  # the time for each way to end a command
READY_S = 0.2  # the wait for the prompt's mark after a command; a changed PS1 may print none
QUIET_S = 0.25  # seconds without further output after which typing is over
SHOWN_BYTES = 2**16  # the output that is kept for `Shell.screen`

# This is typed at the first prompt. The rest of the setup comes through file descriptor 3.
BOOTSTRAP = b" IFS= read -r -d '' -u 3 __command; eval \"$__command\"\r"
# A command comes the same way, so that it may contain anything and its programs can read the
# terminal. It starts with the exit code of the previous command.
TRIGGER = ' __openenv {number}; eval "$__command" 60<&-'
SETUP = """
exec 60<&3 3<&- 4>&-
bind 'set enable-bracketed-paste off' 'set bell-style none' 2>/dev/null
HISTCONTROL=ignorespace HISTFILE=
__openenv() {
    local code=$? number=
    while [[ $number != "$1" ]]; do  # those before were typed, but not to this shell
        IFS= read -r -d '' -u 60 number && IFS= read -r -d '' -u 60 __command || return
    done
    history -s -- "$__command"
    return $code
}
readonly -f __openenv
history -c
"""

SIGNALS = {"C-c": "SIGINT", "C-z": "SIGTSTP", "C-\\": "SIGQUIT"}
_CURSOR_MODE = re.compile(rb"\x1b\[\?1([hl])")


class NoShell(Exception):
    """The shell could not be started or ended."""


class Shell:
    """The bash of one session.

    Its methods return no output; `output` takes the output of the terminal so far.

    Attributes:
        cwd: The directory at the latest prompt, as a path.
        exit_code: The exit code of the latest command that has ended.
        is_running: Whether the shell is not at its prompt.
        prompts: The number of prompts so far.

    Raises:
        NoShell: The shell does not come to its prompt.
        SandboxEnded: The sandbox has ended.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        rows: int,
        columns: int,
        output_bytes: int = 2**15,
    ) -> None:
        self.sandbox = sandbox
        self.cwd = sandbox.home
        self.exit_code: int | None = None
        self.is_running = True
        self.output_bytes = output_bytes
        self._marks = Marks()
        self._is_ready = False
        self._is_resized = False  # the output is the prompt, redrawn after a resize
        self._is_trigger = False  # the output is the echo of `TRIGGER`
        self._number = 0  # the number of the latest command
        self._command = ""  # the latest command
        self._prompt = b""
        self._began_at = 0.0  # the start of the latest command, by the monotonic clock
        self.prompts = 0
        self._has_begun = False  # a command has begun, and is not over yet
        self._commands_over = 0
        self._has_line = False  # text was typed at the prompt, and not entered
        self._after: bytearray | None = None  # output between a command's end and the prompt
        self._shown = bytearray()
        self._application_cursor = False
        self._latest = b""  # the last bytes, which may be the start of a sequence
        self._pid: int | None = None
        self._output = Excerpt(output_bytes)
        self._job = self._start(rows, columns)

    def _start(self, rows: int, columns: int) -> Running:
        try:
            self._job = self.sandbox.start(COMMAND, terminal=(rows, columns), has_channel=True)
        except OSError as error:
            raise NoShell(str(error)) from error
        self._job.say((SETUP + self._marks.setup).encode() + b"\0")
        self._job.write(BOOTSTRAP)
        if not self._wait_until(lambda: self._is_ready, START_TIMEOUT_S):
            self.end()
            raise NoShell("bash does not come to its prompt")
        self._clear_output()
        return self._job

    def _clear_output(self) -> None:
        """Forget the output and the exit code so far."""
        self._output = Excerpt(self.output_bytes)
        self._shown = bytearray(self._prompt)
        self.exit_code = None

    # ------------------------------------------------------------------ commands and keys

    @property
    def code(self) -> int | None:
        """The exit code of the shell itself, or None while it runs."""
        code = self._job.code
        return code if code is None or code >= 0 else 128 - code

    @property
    def has_line(self) -> bool:
        """Whether text was typed at the prompt, and neither entered nor dropped."""
        return self._has_line and not self.is_running

    def run(self, command: str, timeout_s: float) -> bool:
        """Run a command, and return whether it ended in time."""
        self._read_output(0)
        self._after, self._is_trigger = bytearray(), True
        self._command = command
        over = self._commands_over
        self._number += 1
        self._job.say(f"{self._number}\0{command}\0".encode(errors="surrogateescape"))
        self._job.write(TRIGGER.format(number=self._number).encode() + b"\r")
        self.is_running = True
        return self._until_back(over, timeout_s)

    def send(self, data: bytes, timeout_s: float) -> None:
        """Type text and read the output.

        Reading ends when the shell is back at its prompt, when the terminal is quiet after some
        output, or when the time is over.
        """
        prompts = self.prompts
        self._type(data)
        self._until_quiet(prompts, timeout_s)

    def press(self, keys: list[str], timeout_s: float) -> None:
        """Press keys and read the output, like `send`."""
        prompts = self.prompts
        for is_signal, group in itertools.groupby(keys, self._is_signal):
            if is_signal:
                for key in group:
                    self._signal(SIGNALS[key])
            else:
                codes = (encode_key(key, self._application_cursor) for key in group)
                self._type(b"".join(codes))
        self._until_quiet(prompts, timeout_s)

    def _type(self, data: bytes) -> None:
        self._read_output(0)
        if not self.is_running:
            self._has_line = True
            self._output.set_prompt(self._prompt)
        self._job.write(data)

    def wait(self, timeout_s: float) -> bool:
        """Read output until the shell is at its prompt, and return whether that was in time.

        At its prompt, read the output of programs in the background, like `send`.
        """
        if self.is_running:
            return self._until_back(self._commands_over, timeout_s)
        self._until_quiet(self.prompts, timeout_s)
        return True

    def output(self, raw: bool = False) -> tuple[str, int]:
        """Take the output since the last call.

        Returns:
            The text, and the number of bytes that are missing from its middle.
        """
        self._end_of_prompt(is_prompt=False)
        taken, self._output = self._output, Excerpt(self.output_bytes)
        return taken.text(raw), taken.left_out

    def screen(self, rows: int) -> str:
        """Return the last lines of the output."""
        lines = to_plain_text(self._shown.decode(errors="replace")).splitlines()
        return "\n".join(lines[-rows:])

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal; at its prompt, bash redraws the prompt."""
        self._read_output(0)
        self._job.resize(rows, columns)
        if not self.is_running:
            self._is_ready, self._is_resized, self._after = False, True, bytearray()
            self._until_ready()
            self._is_resized = False

    def seed(self, number: int) -> None:
        """Seed RANDOM, and the order of Python's sets."""
        seeds = f"RANDOM={number % 2**31} PYTHONHASHSEED={number % 2**32}"
        if not self.run(f"{seeds}; export PYTHONHASHSEED; history -c", START_TIMEOUT_S):
            raise NoShell("bash does not take a seed")
        self._clear_output()

    # ------------------------------------------------------------------ interrupts

    def interrupt(self) -> str:
        """End the command in the foreground by ever stronger means, and return what worked.

        The means are ``"C-c"``, ``"SIGINT"`` and ``"SIGKILL"`` to its processes, and ``"end of the
        shell"``.
        """
        over = self._commands_over
        if self._is_signal("C-c"):
            self._signal("SIGINT")
        else:
            self._job.write(encode_key("C-c"))
        if self._until_back(over, GRACE_S):
            return "C-c"
        for name in ("SIGINT", "SIGKILL"):
            if self._signal_foreground(name) and self._until_back(over, GRACE_S):
                return name
        self.end()
        return "end of the shell"

    def _is_signal(self, key: str) -> bool:
        """Return whether a key must be sent as a signal, since gVisor of 2022 sends no signal."""
        return key in SIGNALS and self.sandbox.kind == "gvisor"

    def _signal(self, name: str) -> None:
        """Send the signal that a terminal sends for a key."""
        if not (self.is_running and self._signal_foreground(name)):
            self._job.signal(signal.Signals[name])

    def _signal_foreground(self, name: str) -> bool:
        """Send a signal to the processes in the foreground, and return whether there were any.

        None are found under Landlock, which has no /proc, or if the sandbox has so many processes
        that the search cannot start another one.
        """
        age_s = time.monotonic() - self._began_at
        arguments = [str(self._pid or 0), name, str(age_s)]
        command = [self.sandbox.python, "-I", "-S", "-c", FOREGROUND, *arguments]
        try:
            done = self.sandbox.run(command, cwd="/", wall_s=10)
        except SandboxFileError:
            return False
        return done.stdout.strip() == "signalled"

    def end(self) -> None:
        """End the shell and the processes that it has started.

        Raises:
            NoShell: The shell does not end.
        """
        self._job.abandon()
        if not self._job.wait(END_TIMEOUT_S):
            raise NoShell("bash does not end")

    # ------------------------------------------------------------------ reading output

    def _until_back(self, over: int, timeout_s: float) -> bool:
        """Wait for the end of a command and for the prompt; return whether that was in time."""
        self._wait_until(lambda: self._commands_over > over, timeout_s)
        if self._commands_over == over or self.code is not None:
            return False
        self._until_ready()
        return True

    def _until_ready(self) -> None:
        self._wait_until(lambda: self._is_ready, READY_S)
        self._end_of_prompt(is_prompt=True)

    def _until_quiet(self, prompts: int, timeout_s: float) -> None:
        """Wait for some output and then for quiet, or until the prompt is back."""
        deadline, quiet_at = time.monotonic() + timeout_s, None
        while (now := time.monotonic()) < min(deadline, quiet_at or deadline):
            if self.code is not None:
                return
            if self._read_output(min(deadline, quiet_at or deadline) - now):
                quiet_at = time.monotonic() + QUIET_S
            if self.prompts > prompts and not self.is_running:
                self._until_ready()
                return

    def _wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not holds() and self.code is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._read_output(left)
        return holds()

    def _read_output(self, timeout_s: float) -> bool:
        """Read the next output, and return whether there was any in time."""
        data = self._job.read_bytes(timeout_s)
        for found in _CURSOR_MODE.finditer(self._latest + data):
            self._application_cursor = found[1] == b"h"
        self._latest = (self._latest + data)[-4:]
        for part in self._marks.split(data):
            if isinstance(part, bytes):
                self._add_output(part)
            else:
                self._apply_mark(part)
        return bool(data)

    def _add_output(self, data: bytes) -> None:
        if not self._is_trigger:
            self._add_to_screen(data)
        if self._after is not None:
            self._after += data
        else:
            self._output.take(data)

    def _add_to_screen(self, data: bytes) -> None:
        self._shown += data
        del self._shown[:-SHOWN_BYTES]

    def _apply_mark(self, mark: Began | Back | Ready) -> None:
        if isinstance(mark, Began):
            self._end_of_prompt(is_prompt=False)
            self.is_running, self._is_ready, self._has_begun = True, False, True
            self._began_at = time.monotonic()
        elif isinstance(mark, Back):
            self.prompts += 1
            self._commands_over += self._has_begun  # false after a Control-C at the prompt
            self._has_begun = False
            self.is_running, self._is_ready, self._has_line = False, False, False
            self.exit_code, self._pid, self.cwd = mark.exit_code, mark.pid, mark.cwd
            self._after = bytearray()
        elif not self._is_trigger:  # otherwise readline has redrawn the prompt
            self._is_ready = True
            self._end_of_prompt(is_prompt=True)

    def _end_of_prompt(self, is_prompt: bool) -> None:
        """Keep output beside the prompt, such as the report of a job's end."""
        after, self._after = self._after, None
        if after is None:
            return
        if self._is_trigger:
            after, self._is_trigger = bytearray(_ECHO.sub(b"", bytes(after), count=1)), False
            command = self._command.replace("\n", "\r\n") + "\r\n"
            self._add_to_screen(command.encode(errors="replace") + after)
        elif self._is_resized:  # the output before it comes from programs in the background
            del after[len(re.split(rb"\r(?!\n)", after, maxsplit=1)[0]) :]
        elif is_prompt:
            self._prompt = bytes(after[after.rfind(b"\n") + 1 :])
            del after[len(after) - len(self._prompt) :]
        self._output.take(bytes(after))


# The echo of `TRIGGER`, from the start of the line, where readline may have redrawn the prompt. If
# the echo is longer than a line, readline writes the last character again.
_ECHO = re.compile(
    rb"[^\n]*?[ ]*"
    + rb"[ \r\n]*".join(
        rb"\d+" if one == "#" else re.escape(one.encode())
        for one in TRIGGER.format(number="#").strip()
    )
    + rb"(?:[ ]\r(?:\x1b\[\d*[ACK])+-)?[ \r]*\n?"
)


# This runs in the sandbox. It signals the process group in the foreground of the shell's terminal.
# If the kernel does not report that group (old versions of gVisor), it signals every group of the
# shell's session except the shell's own and those that are older than the command.
FOREGROUND = """
import os, signal, sys

shell, number, age = int(sys.argv[1]), getattr(signal, sys.argv[2]), float(sys.argv[3])
found = {}
try:
    names = list(filter(str.isdigit, os.listdir("/proc")))
except OSError:
    names = []
for name in names:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        continue
    found[int(name)] = [int(fields[at]) for at in (2, 3, 5, 19)]
own, session, foreground, _ = found.get(shell, (0, 0, 0, 0))
if foreground > 0:
    groups = {foreground}
elif own:
    with open("/proc/uptime") as file:
        since = (float(file.read().split()[0]) - age - 1) * os.sysconf("SC_CLK_TCK")
    groups = {one[0] for one in found.values() if one[1] == session and one[3] >= since}
else:
    groups = set()
for group in groups - {own}:
    os.killpg(group, number)
if groups - {own}:
    print("signalled")
"""
