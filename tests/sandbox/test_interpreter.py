"""Python in a sandbox: what stays, what is told, and what it may ask of its holder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.amounts import rest

from openenv.sandbox import Interpreter, Sandbox, SandboxEnded, SandboxPolicy
from openenv.sandbox.policy import MIB

# Each test starts a sandbox of each kind.
pytestmark = pytest.mark.slow

Make = Callable[..., Sandbox]


@pytest.fixture
def python(sandbox: Sandbox) -> Iterator[Interpreter]:
    with Interpreter(sandbox) as python:
        yield python


@pytest.fixture
def bubblewrapped(make: Make) -> Sandbox:
    """For what is the interpreter's alone, and no kind's."""
    return make(kind="bubblewrap")


# ------------------------------------------------------------------ pieces of code


def test_names_imports_and_files_stay(python: Interpreter) -> None:
    assert python.run("import math\nx = 6\ndef f(n): return n * x").exit_code == 0
    python.run("open('kept', 'w').write('words')")
    done = python.run("print(f(7), math.floor(2.5), open('kept').read())")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "42 2 words\n", "")
    assert not done.names_are_gone


def test_interpreters_of_a_sandbox_have_names_of_their_own(bubblewrapped: Sandbox) -> None:
    with Interpreter(bubblewrapped) as one, Interpreter(bubblewrapped) as other:
        one.run("x = 1; open('shared', 'w').write('both')")
        assert "NameError: name 'x' is not defined" in other.run("x").stderr
        assert other.run("print(open('shared').read())").stdout == "both\n"


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("6 * 7", "42\n"),
        ("print(1)\n'a'", "1\n'a'\n"),
        ("None", ""),
        ("x = 1", ""),
        ("", ""),
        ("# nothing", ""),
        ("if True:\n    6 * 7", ""),
    ],
)
def test_the_value_of_a_last_expression_is_printed(
    bubblewrapped: Sandbox, code: str, stdout: str
) -> None:
    with Interpreter(bubblewrapped) as python:
        assert python.run(code).stdout == stdout


def test_standard_input_is_at_its_end_for_code_and_what_it_starts(python: Interpreter) -> None:
    for code in ("input('? ')", "import sys; print(repr(sys.stdin.read())); input()"):
        done = python.run(code, wall_s=20)
        assert done.exit_code == 1 and done.seconds < 10
        assert done.stderr.endswith("EOFError: EOF when reading a line\n")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()']).returncode"
    done = python.run(child, wall_s=20)
    assert done.stdout == "1\n" and "EOFError" in done.stderr


def test_an_exception_is_told_with_the_lines_of_its_code(python: Interpreter) -> None:
    python.run("def half(n):\n    return n / 0")
    done = python.run("print('before')\nhalf(3)")
    assert (done.exit_code, done.stdout) == (1, "before\n")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert 'File "<step 2>", line 2, in <module>\n    half(3)' in done.stderr
    assert 'File "<step 1>", line 2, in half\n    return n / 0' in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "interpreter.py" not in done.stderr


def test_what_is_no_python_is_told(python: Interpreter) -> None:
    done = python.run("x = (1,\n")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "SyntaxError: '(' was never closed"
    assert python.run("1 + 1").stdout == "2\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("exit()", 0, ""),
        ("exit(3)", 3, ""),
        ("import sys; sys.exit('that is all')", 1, "that is all\n"),
        ("raise SystemExit(256 + 7)", 7, ""),
        ("exit(-1)", 255, ""),
    ],
)
def test_exit_ends_the_piece_and_not_the_interpreter(
    bubblewrapped: Sandbox, code: str, exit_code: int, stderr: str
) -> None:
    with Interpreter(bubblewrapped) as python:
        python.run("x = 1")
        done = python.run(code)
        assert (done.exit_code, done.stderr, done.names_are_gone) == (exit_code, stderr, False)
        assert python.run("x").stdout == "1\n"


def test_code_may_be_a_program_that_asks_whether_it_is_one(python: Interpreter) -> None:
    code = (
        "import sys\nif __name__ == '__main__': print(sys.modules['__main__'].__name__, sys.argv)"
    )
    assert python.run(code).stdout == "__main__ ['']\n"


def test_sets_have_the_same_order_each_time(bubblewrapped: Sandbox) -> None:
    shown = set()
    for _ in range(3):
        with Interpreter(bubblewrapped) as python:
            shown.add(python.run("list({'a', 'b', 'c', 'd', 'e', 'f'})").stdout)
    assert len(shown) == 1


def test_code_that_is_longer_than_a_frame_is_refused_and_nothing_is_lost(
    python: Interpreter,
) -> None:
    python.run("x = 1")
    with pytest.raises(ValueError, match="code is 1048577 bytes long; the limit is 1048576"):
        python.run("#" * (MIB + 1))
    done = python.run("#" * (MIB - 2) + "\nx")
    assert (done.stdout, done.names_are_gone) == ("1\n", False)


# ------------------------------------------------------------------ time


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
def test_what_takes_too_long_is_interrupted_and_names_stay(python: Interpreter) -> None:
    python.run("x = 1")
    done = python.run("print('begun')\nwhile True: pass", wall_s=0.5)
    assert done.timed_out and done.exit_code == 124
    assert done.stdout == "begun\n"
    assert "KeyboardInterrupt" in done.stderr
    assert not done.names_are_gone
    assert python.run("x").stdout == "1\n"


IGNORE = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""
CATCH = """
import time
while True:
    try: time.sleep(60)
    except KeyboardInterrupt: pass
"""


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
@pytest.mark.parametrize("code", [IGNORE, rest(CATCH)], ids=["ignored", "caught"])
def test_what_cannot_be_interrupted_is_ended_and_its_names_are_told_to_be_gone(
    python: Interpreter, code: str
) -> None:
    python.run("x = 1; open('kept', 'w').write('words')")
    done = python.run(code, wall_s=0.5)
    assert done.seconds < 15
    assert (done.timed_out, done.exit_code, done.names_are_gone) == (True, 124, True)
    assert not python.is_running
    after = python.run("print(open('kept').read()); x")
    assert after.names_are_gone
    assert after.stdout == "words\n"
    assert "NameError: name 'x' is not defined" in after.stderr
    assert not python.run("y = 1").names_are_gone


def test_an_interrupt_that_comes_late_ends_nothing(python: Interpreter) -> None:
    python.run("x = 1")
    job = python._job
    assert job is not None
    job.interrupt()
    assert python.run("x").stdout == "1\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import ctypes; ctypes.string_at(0)", 128 + 11),
    ],
)
def test_an_interpreter_that_has_ended_is_started_anew(
    bubblewrapped: Sandbox, code: str, exit_code: int
) -> None:
    with Interpreter(bubblewrapped) as python:
        python.run("x = 1")
        done = python.run(f"print('last words', flush=True)\n{code}")
        assert (done.exit_code, done.stdout) == (exit_code, "last words\n")
        assert done.names_are_gone and not done.timed_out
        assert "NameError" in python.run("x").stderr


def test_a_sandbox_that_ends_ends_its_interpreter(make: Make) -> None:
    sandbox = make(SandboxPolicy(memory_bytes=100 * MIB), kind="bubblewrap")
    python = Interpreter(sandbox)
    eat = "import mmap\nheld = mmap.mmap(-1, 2**28)\nfor _ in range(2**8): held.write(b'x' * 2**20)"
    with pytest.raises(SandboxEnded, match="MiB of memory"):
        python.run(f"{eat}\nimport time; time.sleep(60)")
    with pytest.raises(SandboxEnded, match="MiB of memory"):
        python.run("1")
    python.close()


def test_too_much_memory_for_one_process_is_a_memory_error(make: Make) -> None:
    sandbox = make(SandboxPolicy(memory_bytes=100 * MIB), kind="bubblewrap")
    with Interpreter(sandbox) as python:
        done = python.run("x = 1\nheld = bytearray(2**28)")
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "MemoryError")
        assert python.run("x").stdout == "1\n"


def test_a_closed_interpreter_leaves_the_sandbox(python: Interpreter) -> None:
    python.run("x = 1")
    python.close()
    python.close()
    assert python.sandbox.run("echo here").stdout == "here\n"
    assert "NameError" in python.run("x").stderr


# ------------------------------------------------------------------ what is printed


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
def test_output_comes_while_the_code_runs(python: Interpreter) -> None:
    heard: list[tuple[str, str, float]] = []
    began = time.monotonic()
    code = (
        "import time, sys\nprint('one', flush=True)\ntime.sleep(0.7)\nprint('two', file=sys.stderr)"
    )
    done = python.run(code, on_output=lambda *said: heard.append((*said, time.monotonic() - began)))
    for stream, text in (("stdout", "one\n"), ("stderr", "two\n")):
        assert "".join(part for of, part, _ in heard if of == stream) == text
    assert heard[-1][2] - heard[0][2] > 0.4
    assert (done.stdout, done.stderr) == ("one\n", "two\n")
    so_far = len(heard)
    python.run("print('three')")
    assert len(heard) == so_far


def test_huge_output_keeps_its_beginning_and_its_end(make: Make, kind: str) -> None:
    sandbox = make(SandboxPolicy(output_bytes=1000), kind=kind)
    with Interpreter(sandbox) as python:
        done = python.run(
            "for n in range(100_000): print(n)\nimport sys; print('e', file=sys.stderr)"
        )
        assert done.stdout.startswith("0\n1\n2\n") and done.stdout.endswith("\n99998\n99999\n")
        assert f"[... {done.left_out['stdout']} bytes are left out here ...]" in done.stdout
        assert len(done.stdout) < 1100 and done.stderr == "e\n"
        after = python.run("print('x' * 999)")
        assert (after.stdout, dict(after.left_out)) == ("x" * 999 + "\n", {})


def test_what_a_child_prints_is_the_pieces(python: Interpreter) -> None:
    code = "import subprocess, sys\nsubprocess.run(['echo', 'from a child'])\nprint('mine')"
    assert python.run(code).stdout == "from a child\nmine\n"


def test_text_of_every_script_goes_in_and_out(python: Interpreter) -> None:
    text = "Grüße, 世界 🎉 \u202e\x00\x1b[31m"
    done = python.run(f"s = {text!r}\nprint(len(s)); print(s)")
    assert done.stdout == f"{len(text)}\n{text}\n"
    assert python.run(f"ж = 2  # {text[:12]}\nж").stdout == "2\n"


def test_half_a_character_breaks_nothing(python: Interpreter) -> None:
    assert python.run(r"print('\ud800 and \udfff')").stdout == "\\ud800 and \\udfff\n"
    done = python.run("'\ud800'")  # in the code itself, which no file of Python could have
    assert (done.exit_code, done.stdout) in ((0, "'\\ud800'\n"), (1, ""))
    assert not done.names_are_gone
    assert python.run("import os; os.write(1, b'\\xff\\xfe'); None").stdout == "\ufffd\ufffd"
    assert python.run("1").stdout == "1\n"


# ------------------------------------------------------------------ functions of the holder


@pytest.fixture
def calls() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def asking(bubblewrapped: Sandbox, calls: list[dict[str, Any]]) -> Iterator[Interpreter]:
    """An interpreter with functions of this process."""

    def look(**arguments: Any) -> Any:
        calls.append(arguments)
        return {"seen": arguments, "number": len(calls)}

    def fail(words: str) -> None:
        raise KeyError(words)

    functions: dict[str, Callable[..., Any]] = {
        "look": look,
        "fail": fail,
        "give": lambda size: "x" * size,
        "odd": lambda: object(),
    }
    with Interpreter(bubblewrapped, functions) as python:
        yield python


def test_code_calls_functions_of_this_process(
    asking: Interpreter, calls: list[dict[str, Any]]
) -> None:
    done = asking.run("got = [look(n=n, word='ä')['number'] for n in range(3)]\ngot")
    assert done.stdout == "[1, 2, 3]\n"
    assert calls == [{"n": n, "word": "ä"} for n in range(3)]
    assert asking.run("look(nested={'a': [1, None, True]})").stdout == (
        "{'seen': {'nested': {'a': [1, None, True]}}, 'number': 4}\n"
    )


def test_what_was_printed_before_a_call_is_heard_before_it(asking: Interpreter) -> None:
    heard: list[str] = []
    asking.functions["mark"] = lambda: heard.append("called")
    code = "print('before')\nmark()\nprint('after')"
    asking.run(code, on_output=lambda stream, text: heard.append(text))
    assert "".join(heard) == "before\ncalledafter\n"


def test_arguments_are_given_by_name(asking: Interpreter) -> None:
    done = asking.run("look(1)")
    assert "TypeError: look() takes its arguments by name" in done.stderr
    assert "TypeError" in asking.run("look(n={1, 2})").stderr
    assert asking.run("look(n=1)['number']").stdout == "1\n"


def test_what_a_function_raises_can_be_caught_in_there(asking: Interpreter) -> None:
    code = "try: fail(words='no')\nexcept RuntimeError as error: print(type(error).__name__, error)"
    assert asking.run(code).stdout == "ToolError 'no'\n"
    done = asking.run("fail(word='misspelt')")
    assert done.exit_code == 1
    assert "unexpected keyword argument 'word'" in done.stderr


def test_what_json_cannot_carry_is_an_error_of_the_call(asking: Interpreter) -> None:
    assert "ToolError: Object of type object is not JSON serializable" in asking.run("odd()").stderr
    assert asking.run("look()['number']").stdout == "1\n"


@pytest.mark.parametrize("size", [1, 2**16, 2**20 - 2])
def test_large_values_come_whole(asking: Interpreter, size: int) -> None:
    assert asking.run(f"len(give(size={size}))").stdout == f"{size}\n"


def test_values_that_are_too_large_are_errors_of_the_call(asking: Interpreter) -> None:
    done = asking.run("give(size=2**20)")
    assert done.exit_code == 1 and "is too long" in done.stderr
    done = asking.run("look(text='x' * 2**20)")
    assert done.exit_code == 1 and "ValueError: the arguments of look are" in done.stderr
    assert not done.names_are_gone
    assert asking.run("look()['number']").stdout == "1\n"


def test_functions_may_change_between_pieces(asking: Interpreter) -> None:
    asking.functions["later"] = lambda: "now"
    assert asking.run("later()").stdout == "'now'\n"
    del asking.functions["later"]
    assert "ToolError: 'later'" in asking.run("later()").stderr


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
def test_time_in_a_function_counts_as_the_codes(asking: Interpreter) -> None:
    asking.functions["slow"] = lambda: time.sleep(1)
    done = asking.run("slow()\nwhile True: slow()", wall_s=0.5)
    assert done.timed_out
    asking.functions["slow"] = lambda: "quick"
    assert asking.run("slow()").stdout == "'quick'\n"


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
def test_a_function_that_is_no_more_called_for_holds_nobody(asking: Interpreter) -> None:
    """A call that is never answered: the code is interrupted while its holder answers it."""
    entered = threading.Event()

    def slow() -> str:
        entered.set()
        time.sleep(1)
        return "late"

    asking.functions["slow"] = slow
    done = asking.run("x = 1\nslow()", wall_s=0.3)
    assert entered.is_set() and done.timed_out
    after = asking.run("print('fresh')")
    assert after.stdout == "fresh\n"


@pytest.mark.extended("waits for limits of a sandbox; test_sandbox.py shows them")
def test_an_answer_that_comes_late_is_nobody_elses(asking: Interpreter) -> None:
    def slow() -> str:
        time.sleep(0.6)
        return "late"

    asking.functions |= {"slow": slow, "quick": lambda: "in time"}
    code = "try: slow()\nexcept KeyboardInterrupt: pass\nfor _ in range(3): print(quick())"
    for _ in range(5):
        done = asking.run(code, wall_s=0.3)
        assert done.timed_out and not done.names_are_gone
        assert done.stdout in ("", "in time\n" * 3)
        assert asking.run("print(quick())").stdout == "in time\n"


# ------------------------------------------------------------------ code that means harm


def test_an_interpreter_whose_channel_is_garbled_says_so(bubblewrapped: Sandbox) -> None:
    with Interpreter(bubblewrapped) as python:
        python.run("x = 1")
        done = python.run("import os, time\nos.write(4, b'\\xff' * 100)\ntime.sleep(60)", wall_s=30)
        assert (done.exit_code, done.timed_out, done.names_are_gone) == (255, False, True)
        assert "the code has written to the interpreter's own files" in done.stderr
        assert done.seconds < 20
        assert "NameError" in python.run("x").stderr


def test_an_exit_code_that_the_code_tells_itself_is_bounded(bubblewrapped: Sandbox) -> None:
    speak = """
import json, os, struct
head = json.dumps({"is": "done", "exit_code": CODE}).encode()
os.write(4, struct.pack(">II", len(head), 0) + head)
"""
    for code, expected in (("'zero'", 255), ("[]", 255), ("10**9", 10**9 & 0xFF)):
        with Interpreter(bubblewrapped) as python:
            assert python.run(speak.replace("CODE", code)).exit_code == expected


def test_a_call_that_the_code_makes_up_is_an_error(bubblewrapped: Sandbox) -> None:
    speak = """
import os, struct
head = b'{"is": "call"}'
body = BODY
os.write(4, struct.pack(">II", len(head), len(body)) + head + body)
"""
    for body in (b"", b"[]", b'{"name": "look"}', b'{"name": [], "arguments": {}}', b"\xff"):
        with Interpreter(bubblewrapped, {"look": lambda: 1}) as python:
            done = python.run(speak.replace("BODY", repr(body)))
            assert not done.timed_out
            assert bubblewrapped.run("echo here").stdout == "here\n"


def test_code_may_replace_what_the_interpreter_prints_with(bubblewrapped: Sandbox) -> None:
    with Interpreter(bubblewrapped) as python:
        python.run("import builtins\nbuiltins.repr = lambda one: 'mine'\nbuiltins.compile = None")
        python.run("1")
        assert python.run("import sys; sys.stdout = sys.stderr = None").exit_code in (0, 1, 120)
        assert bubblewrapped.run("echo here").stdout == "here\n"


def test_an_exception_that_cannot_be_shown_is_told_as_that(bubblewrapped: Sandbox) -> None:
    code = """
class Evil(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
raise Evil
"""
    with Interpreter(bubblewrapped) as python:
        done = python.run(code)
        assert done.exit_code == 1 and "Evil" in done.stderr
        assert not done.names_are_gone


def test_files_beside_the_code_do_not_stand_in_for_modules_of_the_interpreter(
    bubblewrapped: Sandbox,
) -> None:
    for name in ("frames.py", "json.py", "traceback.py", "sitecustomize.py", "usercustomize.py"):
        bubblewrapped.write(name, "print('planted', __file__)\nraise SystemExit(1)")
    with Interpreter(bubblewrapped, {"look": lambda: 1}) as python:
        done = python.run("look()")
        assert (done.stdout, done.stderr) == ("1\n", "")


def test_code_imports_what_lies_beside_it(python: Interpreter) -> None:
    python.sandbox.write("beside.py", "words = 'of a file'")
    assert python.run("import beside; beside.words").stdout == "'of a file'\n"
