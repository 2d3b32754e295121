"""A capture proxy, ours or the public package's, by whichever Python runs this.

    python benchmarks/servers/captured.py UPSTREAM_URL PORT

It prints the key of a session.
"""

import sys
import threading

from openenv.core.harness.capture import CaptureServer

if __name__ == "__main__":
    server = CaptureServer(llm_url=sys.argv[1], model="m", port=int(sys.argv[2]))
    server.start()
    for _ in range(int(sys.argv[3])):
        print(server.registry.create().session_id, flush=True)
    threading.Event().wait()
