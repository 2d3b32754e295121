"""Our Atari environment, as `openenv serve` finds it in a file."""

from atari_env.server.app import app as app
