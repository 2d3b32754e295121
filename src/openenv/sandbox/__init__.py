"""Isolation for untrusted code, such as code that a model wrote.

    from openenv.sandbox import Interpreter, Sandbox

    with Sandbox(require="namespaces") as sandbox, Interpreter(sandbox) as python:
        print(sandbox.kind)  # bubblewrap
        print(python.run("6 * 7").stdout)  # 42

A `Sandbox` is of the strongest kind that the machine has, and `Sandbox.kind` names it. If no kind
gives the required guarantee, `SandboxUnavailable` is raised and nothing runs.

Read `sandbox.py` first (the side of the holder), then `inside/guest.py` (the first process inside)
and `kinds.py` (how a sandbox is started).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.errors import SandboxEnded as SandboxEnded
    from openenv.errors import SandboxError as SandboxError
    from openenv.errors import SandboxFileError as SandboxFileError
    from openenv.errors import SandboxUnavailable as SandboxUnavailable
    from openenv.sandbox.interpreter import Execution as Execution
    from openenv.sandbox.interpreter import Interpreter as Interpreter
    from openenv.sandbox.kinds import Kind as Kind
    from openenv.sandbox.kinds import Offer as Offer
    from openenv.sandbox.kinds import kinds_of_this_machine as kinds_of_this_machine
    from openenv.sandbox.kinds import strongest as strongest
    from openenv.sandbox.policy import Guarantee as Guarantee
    from openenv.sandbox.policy import SandboxPolicy as SandboxPolicy
    from openenv.sandbox.pool import Pool as Pool
    from openenv.sandbox.sandbox import Completed as Completed
    from openenv.sandbox.sandbox import Running as Running
    from openenv.sandbox.sandbox import Sandbox as Sandbox
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
