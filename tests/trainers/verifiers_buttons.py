"""A taskset of verifiers: the environment of `buttons`, in this process."""

from trainers.buttons import Buttons

from openenv.integrations.verifiers import OpenEnvEnv, OpenEnvTaskset


class ButtonsTaskset(OpenEnvTaskset):
    environment = Buttons


__all__ = ["ButtonsTaskset", "OpenEnvEnv"]
