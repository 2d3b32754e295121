"""Our coding environment, as `openenv serve` finds it in a file; CODING_ENGINE says how it runs."""

from coding_env.server.app import app as app
