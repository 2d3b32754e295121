"""Any environment as one of another library's: Gymnasium, PettingZoo, dm_env.

    from openenv.integrations.gymnasium import GymnasiumEnv

    env = GymnasiumEnv("http://localhost:8000")

Each library is imported by its own module, and has to be installed.
"""
