"""The old path `openenv.core.sync_client`; written by scripts/mirrors.py."""

from openenv.client.sync import SyncEnvClient as SyncEnvClient

__all__ = ["SyncEnvClient"]
