"""Our Atari environment as a file for `openenv serve`."""

from atari_env.server.app import app as app
