"""Environments for other libraries: Gymnasium, PettingZoo, dm_env, and trainers.

    from openenv.integrations.gymnasium import GymnasiumEnv

    env = GymnasiumEnv("http://localhost:8000")

Each library has its own module, which imports it; the library has to be installed. The modules for
classic reinforcement learning build on `GymnasiumEnv`. Those for trainers of language models build
on `openenv.rollouts.episode_sessions` (read ``_episodes.py`` first). This package is used by
training programs, and uses the client and, for trainers, `openenv.rollouts`.
"""
