"""A taskset of verifiers in the league: one tool that echoes, and a reward for each call.

The tool server is shared by the rollouts of a worker, which costs less than one for each rollout.
"""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf


class EchoData(vf.TaskData):  # type: ignore[misc]
    pass


class EchoToolset(vf.Toolset[vf.SharedToolsetConfig]):  # type: ignore[misc]
    TOOL_PREFIX = "echo"

    @vf.tool  # type: ignore[untyped-decorator]
    def say(self, text: str) -> str:
        """Say the text."""
        return text


class EchoTask(vf.Task[EchoData]):  # type: ignore[misc]
    @vf.reward  # type: ignore[untyped-decorator]
    async def steps(self, trace: vf.Trace) -> float:
        return float(sum(message.role == "tool" for message in trace.messages))


class EchoConfig(vf.TasksetConfig):  # type: ignore[misc]
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class EchoTaskset(vf.Taskset[EchoTask, EchoConfig]):  # type: ignore[misc]
    def load(self) -> Iterable[EchoTask]:
        yield EchoTask(EchoData(prompt="0"), self.config.task)

    @classmethod
    def toolsets(cls, config: EchoConfig) -> list[vf.Toolset]:
        return [EchoToolset(config.tools)]


__all__ = ["EchoTaskset"]


if __name__ == "__main__":  # the environment server starts this module as the tool server
    EchoToolset.run()
