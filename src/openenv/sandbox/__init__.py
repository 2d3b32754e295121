"""Places of their own for code that nobody has read: what a model wrote, above all.

    from openenv.sandbox import Interpreter, Sandbox

    with Sandbox(require="namespaces") as sandbox, Interpreter(sandbox) as python:
        print(sandbox.kind)  # bubblewrap
        print(python.run("6 * 7").stdout)  # 42

The strongest kind that the machine has is used, and it says which that is; where it has none with
the guarantee that is asked for, nothing is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.errors import (
        SandboxEnded,
        SandboxError,
        SandboxFileError,
        SandboxUnavailable,
    )
    from openenv.sandbox.interpreter import Execution, Interpreter
    from openenv.sandbox.kinds import Kind, Offer, kinds_of_this_machine, strongest
    from openenv.sandbox.policy import Guarantee, SandboxPolicy
    from openenv.sandbox.pool import Pool
    from openenv.sandbox.sandbox import Completed, Running, Sandbox

__all__ = [
    "Completed",
    "Execution",
    "Guarantee",
    "Interpreter",
    "Kind",
    "Offer",
    "Pool",
    "Running",
    "Sandbox",
    "SandboxEnded",
    "SandboxError",
    "SandboxFileError",
    "SandboxPolicy",
    "SandboxUnavailable",
    "kinds_of_this_machine",
    "strongest",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.errors": [
            "SandboxEnded",
            "SandboxError",
            "SandboxFileError",
            "SandboxUnavailable",
        ],
        "openenv.sandbox.interpreter": ["Execution", "Interpreter"],
        "openenv.sandbox.kinds": ["Kind", "Offer", "kinds_of_this_machine", "strongest"],
        "openenv.sandbox.policy": ["Guarantee", "SandboxPolicy"],
        "openenv.sandbox.pool": ["Pool"],
        "openenv.sandbox.sandbox": ["Completed", "Running", "Sandbox"],
    },
)
