"""The side of the Reasoning Gym environment that asks and scores."""
