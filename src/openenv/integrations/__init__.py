"""Environments for other libraries: Gymnasium, PettingZoo, dm_env, and trainers.

    from openenv.integrations.gymnasium import GymnasiumEnv

    env = GymnasiumEnv("http://localhost:8000")

Each library is imported by its own module, and has to be installed.
"""
