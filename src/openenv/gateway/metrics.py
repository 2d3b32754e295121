"""What a gateway counts, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from openenv.gateway.gateway import Gateway

__all__ = ["written"]

LABELS = ["environment", "server"]


class _Numbers:
    """A collector of `prometheus_client`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        gateway = self._gateway
        up = GaugeMetricFamily("openenv_gateway_server_up", "It answers.", labels=LABELS)
        draining = GaugeMetricFamily(
            "openenv_gateway_server_draining", "It gets no new sessions.", labels=LABELS
        )
        now = GaugeMetricFamily(
            "openenv_gateway_connections", "WebSockets that are open.", labels=LABELS
        )
        ever = CounterMetricFamily(
            "openenv_gateway_connections_made", "WebSockets that were opened.", labels=LABELS
        )
        taken = GaugeMetricFamily(
            "openenv_gateway_server_sessions", "Sessions that it says it holds.", labels=LABELS
        )
        for server in gateway.servers:
            labels = [server.environment, server.url]
            up.add_metric(labels, float(server.is_up))
            draining.add_metric(labels, float(server.is_draining))
            now.add_metric(labels, server.connections)
            ever.add_metric(labels, server.served)
            if server.taken is not None:
                taken.add_metric(labels, server.taken)
        yield from (up, draining, now, ever, taken)
        for name, words, counted in (
            ("requests", "HTTP requests that a server has answered.", gateway.answered),
            ("refused", "Requests that were passed on to no server.", gateway.refused),
        ):
            family = CounterMetricFamily(f"openenv_gateway_{name}", words, labels=["status"])
            for status, count in sorted(counted.items()):
                family.add_metric([str(status)], count)
            yield family


def written(gateway: Gateway) -> str:
    """All of it, as text."""
    from prometheus_client import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(_Numbers(gateway))
    return generate_latest(registry).decode()
