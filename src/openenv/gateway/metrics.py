"""Prometheus metrics of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from openenv.gateway.gateway import Gateway

__all__ = ["render_metrics"]

_OF_SERVERS = (  # name, help, attribute of `Backend`
    ("server_up", "Whether the server answers.", "is_up"),
    ("server_draining", "Whether the server gets no new sessions.", "is_draining"),
    ("connections", "Open WebSockets.", "connections"),
    ("connections_made", "WebSockets opened so far.", "served"),
    ("server_sessions", "Sessions that the server reports.", "taken"),
)


class _GatewayCollector:
    """A `prometheus_client` collector of a gateway's metrics."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        gateway = self._gateway
        for name, words, attribute in _OF_SERVERS:
            made = CounterMetricFamily if attribute == "served" else GaugeMetricFamily
            family = made(f"openenv_gateway_{name}", words, labels=["environment", "server"])
            for server in gateway.servers:
                if (value := getattr(server, attribute)) is not None:
                    family.add_metric([server.environment, server.url], float(value))
            yield family
        for name, words, counted in (
            ("requests", "HTTP requests that a server has answered.", gateway.answered),
            ("refused", "Requests that the gateway has refused.", gateway.refused),
        ):
            counter = CounterMetricFamily(f"openenv_gateway_{name}", words, labels=["status"])
            for status, count in sorted(counted.items()):
                counter.add_metric([str(status)], count)
            yield counter


def render_metrics(gateway: Gateway) -> str:
    """Return all metrics in Prometheus's text format."""
    from prometheus_client import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(_GatewayCollector(gateway))
    return generate_latest(registry).decode()
