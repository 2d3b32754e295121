"""A resources server of NeMo Gym for any environment; `blackjack.yaml` says which."""

from openenv.integrations.nemo_gym import OpenEnvResourcesServer

if __name__ == "__main__":
    OpenEnvResourcesServer.run_webserver()
