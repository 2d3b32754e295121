"""Sessions, and the execution of environments; no web framework.

Above: `openenv.server`, which carries frames between sockets and connections, and the client's
in-process transport. Below: `openenv.protocol`, `openenv.tools`, `openenv.tasks` and
`openenv.rewards`.

Read ``session.py`` first, then ``runner.py`` (calls the environment), ``executors.py`` and
``threads.py`` (choose and run the thread), ``connections/`` (turn frames into calls),
``manager.py`` (creates, finds and closes sessions), and ``process.py``, ``link.py`` and
``worker.py`` (worker processes).
"""
