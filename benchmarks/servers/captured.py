"""A capture proxy, ours or the public package's, depending on the Python that runs this.

    python benchmarks/servers/captured.py UPSTREAM_URL PORT COUNT

The program prints the keys of COUNT new sessions, one per line.
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
