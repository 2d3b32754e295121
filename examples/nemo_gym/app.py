"""A resources server of NeMo Gym for the environment that `blackjack.yaml` names."""

from openenv.integrations.nemo_gym import OpenEnvResourcesServer

if __name__ == "__main__":
    OpenEnvResourcesServer.run_webserver()
