"""Our coding environment as a file for `openenv serve`; CODING_ENGINE selects the engine."""

from coding_env.server.app import app as app
