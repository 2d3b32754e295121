"""Sessions, and the execution of environments; no web framework.

`openenv.server` uses this package to carry frames between sockets and connections, and so does the
client's in-process transport. It builds on `openenv.protocol`, `openenv.tools`, `openenv.tasks` and
`openenv.rewards`.

Read ``session.py`` first, then ``runner.py`` (calls the environment), ``executors.py`` and
``threads.py`` (choose and run the thread), ``connections/`` (turn frames into calls),
``manager.py`` (creates, finds and closes sessions), and ``process.py``, ``link.py`` and
``worker.py`` (worker processes).
"""
