"""The server side of the Reasoning Gym environment."""
