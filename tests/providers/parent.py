"""A program that starts a server and then meets the end that its argument names.

It prints the ids of the server and of a process that the environment has started.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path

from openenv._internal import children as _children
from openenv.providers.process import ProcessProvider

sys.path.insert(0, str(Path(__file__).parents[1]))
PROBE = Path(__file__).parents[1] / "support" / "probe.py"


def main(end: str, how: str) -> None:
    from support.probe import Ask, ProbeEnv

    _children._is_first = how != "forked"  # the first server is not forked
    provider = ProcessProvider(PROBE)
    client = ProbeEnv.with_provider(provider).sync()
    client.connect()
    client.reset()
    grandchild = client.step(Ask(what="spawn")).observation.value
    directory = client.step(Ask(what="where")).observation.value["directory"]
    pids = {"server": provider.pid, "grandchild": grandchild, "directory": directory}
    pids["parent"] = client.step(Ask(what="parent")).observation.value
    sys.stdout.write(json.dumps(pids) + "\n")
    sys.stdout.flush()
    if end == "exit":
        return
    if end == "raise":
        raise RuntimeError("on purpose")
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "killed while a forked child lives":
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.readline()
    if end == "collected":
        del client, provider
        gc.collect()
        sys.stdin.readline()
    if end == "forked child exits":
        child = os.fork()
        if not child:
            with ProcessProvider(PROBE) as own:
                own.wait_for_ready()
                ended = own.pid
            assert ended != provider.pid
            provider.stop()  # which it leaves to its parent
            del client, provider
            gc.collect()
            sys.exit(0)
        os.waitpid(child, 0)
        assert client.step(Ask(what="where")).observation.value["pid"] == provider.pid
        sys.stdout.write("still there\n")
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
