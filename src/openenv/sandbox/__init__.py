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
