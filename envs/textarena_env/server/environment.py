"""An alias of `textarena_environment`, by which existing code imports the environment."""

from .textarena_environment import TextArenaEnvironment

__all__ = ["TextArenaEnvironment"]
