"""`StdioHarnessAdapter`: a harness that runs for a whole episode and exchanges JSON lines.

For each turn the harness reads a line, ``{"type": "message", "content": "..."}``, and writes a line
for each event in the form of `HarnessEvent`: ``{"type": "text_output", "data": {"text": "..."}}``.
The last event of a turn is ``{"type": "turn_complete", "data": {"response": "..."}}``, or ``error``
with a `message` if the turn failed. Error messages show the harness's standard error.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable

from openenv.agents.config import HarnessConfig
from openenv.agents.errors import HarnessCrashedError, HarnessNotRunningError, HarnessTurnError
from openenv.agents.events import HarnessEvent, HarnessEventType
from openenv.agents.process_adapter import ProcessAdapter, parse_event
from openenv.errors import how_it_ended

__all__ = ["StdioHarnessAdapter"]

ENDS = (HarnessEventType.TURN_COMPLETE, HarnessEventType.ERROR)


class StdioHarnessAdapter(ProcessAdapter):
    """A harness adapter that reads and writes lines on the standard streams.

    Args:
        config: Configuration of the harness.
        ready_check: Called with each line of output after the start; returns whether the harness is
            ready. These lines are not events. Default: the harness counts as ready at once.
    """

    def __init__(
        self, config: HarnessConfig, *, ready_check: Callable[[str], bool] | None = None
    ) -> None:
        super().__init__(config)
        self._ready_check = ready_check

    async def start(self, working_directory: str) -> None:
        await self.stop()
        try:
            self._prepare(working_directory)
            self._running = self._process(self.config.command)
            await self._running.start(self._ready_check)
        except BaseException:
            await self.stop()
            raise

    async def is_alive(self) -> bool:
        return self._running is not None and self._running.is_running()

    def _why_not_alive(self) -> str:
        process = self._running
        if process is None:
            return super()._why_not_alive()
        how = how_it_ended(process.exit_code)
        return f"harness {self.config.name!r} has ended ({how}){process.last_words()}"

    async def _turn(self, message: str) -> AsyncGenerator[HarnessEvent]:
        process, name = self._running, self.config.name
        assert process is not None
        try:
            await process.write_line(json.dumps({"type": "message", "content": message}))
            while True:
                line = await process.next_line()
                if not line.strip():
                    continue
                event = parse_event(line)
                if event.type is HarnessEventType.ERROR and not event.data.get("recoverable"):
                    raise HarnessTurnError(f"harness {name!r}: {event.data.get('message')}")
                yield event
                if event.type in ENDS:
                    return
        except (HarnessCrashedError, HarnessNotRunningError) as error:
            code = process.exit_code
            how = "it closed its output" if code is None else how_it_ended(code)
            raise HarnessCrashedError(
                f"harness {name!r} ended in the middle of a turn: {how}{process.last_words()}", code
            ) from error
