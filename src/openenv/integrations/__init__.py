"""Environments for other libraries: Gymnasium, PettingZoo, dm_env, and trainers.

    from openenv.integrations.gymnasium import GymnasiumEnv

    env = GymnasiumEnv("http://localhost:8000")

Each library is imported by its own module, and has to be installed. Views for classic reinforcement
learning are `GymnasiumEnv` and its kin; trainers of language models play by
`openenv.rollouts.episode_sessions` (read ``_episodes.py`` first). Above: the program that trains.
Below: the client, and `openenv.rollouts` for trainers.
"""
