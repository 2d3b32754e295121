"""A client of a Kubernetes cluster's API server; objects are dictionaries.

Kubernetes' Python client finds the cluster, authenticates, and holds the connections. Its object
classes differ between versions and are not used; the API server itself refuses unknown fields.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from openenv._internal.json import read_json
from openenv._internal.net.proxies import is_from_environment, proxy_for
from openenv._internal.packages import needs
from openenv._internal.redaction import redact
from openenv._internal.timing import backoff_s
from openenv.errors import ProviderError
from openenv.providers.servers import Executed

CONNECTIONS = 64  # per API server
SILENCE_S = 30.0
# A request to an unreachable API server fails within 15 s, retries included. Until the first answer
# the time-outs are short.
CONNECT_S = 4.0
FIRST_ANSWER_S = 10.0
UNREACHABLE_S = 8.0
TRIES, FIRST_PAUSE_S = 5, 0.2
BUSY = (429, 503, 504)
MANAGER = "openenv"
PLACES = {
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Event": ("/api/v1", "events"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Pod": ("/api/v1", "pods"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
}
HOW = (
    "name a kubeconfig (kubeconfig=, --kubeconfig, the variable KUBECONFIG or ~/.kube/config), or "
    "run in a cluster"
)

Manifest = dict[str, Any]


class ClusterError(ProviderError):
    """The API server refused a request, or does not answer.

    Attributes:
        status: The HTTP status; 0 if there was no answer.
        reason: Kubernetes' reason, such as ``Forbidden``.
    """

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)


def sdk() -> Any:
    """Import Kubernetes' client, or raise MissingPackage."""
    with needs("KubernetesProvider", "pip install 'openenv[kubernetes]'"):
        import kubernetes
        import kubernetes.client
        import kubernetes.config
        import kubernetes.stream.ws_client
    return kubernetes


@dataclass(frozen=True)
class WebSocketAddress:
    """The address of a WebSocket of the API server, and the arguments that open it."""

    url: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None


class Cluster:
    """A client of a cluster's API server. Any thread may call the methods.

    Args:
        kubeconfig: File with the cluster's address and the credentials. By default that of
            KUBECONFIG, the in-cluster settings of a pod, or ``~/.kube/config``.
        context: A context of the kubeconfig; None for the current context.

    Attributes:
        is_around: Whether this program runs inside the cluster.

    Raises:
        MissingPackage: Kubernetes' client is not installed.
        ProviderError: No cluster is configured.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        kubernetes = sdk()
        self._configuration = kubernetes.client.Configuration()
        is_told = kubeconfig or context or os.environ.get("KUBECONFIG")
        self.is_around = not is_told and "KUBERNETES_SERVICE_HOST" in os.environ
        try:
            if self.is_around:
                kubernetes.config.load_incluster_config(self._configuration)
            else:
                kubernetes.config.load_kube_config(kubeconfig, context, self._configuration)
        except kubernetes.config.ConfigException as error:
            why = str(error).rstrip(".")
            if kubeconfig and not os.path.exists(kubeconfig):
                why = f"there is no file {kubeconfig}"
            raise ProviderError(redact(f"no cluster is configured: {why}; {HOW}")) from None
        self._configuration.connection_pool_maxsize = CONNECTIONS
        # Kubernetes' client would use the proxy of the environment even for a local cluster.
        proxy = self._configuration.proxy
        if is_from_environment(proxy) and proxy_for(self._configuration.host) is None:
            self._configuration.proxy = None
        self._has_answered = False
        self._client = kubernetes.client.ApiClient(self._configuration)
        self._pool = self._client.rest_client.pool_manager
        weakref.finalize(self, _close, self._pool)  # the client does not close its connections

    # ------------------------------------------------------------------ objects

    def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object. If a retry finds that it exists, the first attempt has created it.

        Raises:
            ClusterError: The API server refuses the object.
        """
        kind, namespace, name = _told(manifest)
        body = json.dumps(manifest).encode()
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        try:
            return self._asked("POST", _path(kind, namespace), query, body)
        except _Twice:
            return self.get(kind, namespace, name)

    def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Manifest:
        """Create or change an object with a server-side apply.

        Args:
            manifest: The object.
            dry_run: Only check whether the API server accepts the object.

        Raises:
            ClusterError: The API server refuses the object.
        """
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        body = json.dumps(manifest).encode()
        return self._asked(
            "PATCH", _path(*_told(manifest)), query, body, "application/apply-patch+yaml"
        )

    def merge(self, kind: str, namespace: str, name: str, change: Mapping[str, Any]) -> Manifest:
        """Change a part of an object with a merge patch."""
        body = json.dumps(change).encode()
        path = _path(kind, namespace, name)
        return self._asked(
            "PATCH", path, {"fieldManager": MANAGER}, body, "application/merge-patch+json"
        )

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return an object."""
        return self._asked("GET", _path(kind, namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object; None if it does not exist."""
        try:
            return self.get(kind, namespace, name)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, kind: str, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[Manifest]:
        """Return the objects that match selectors for labels and fields."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        found = self._asked("GET", _path(kind, namespace), {k: v for k, v in query.items() if v})
        return list(found.get("items") or ())

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object and its dependents; do nothing if the object does not exist."""
        body = json.dumps({"propagationPolicy": "Background"}).encode()
        try:
            self._asked("DELETE", _path(kind, namespace, name), {}, body)
        except ClusterError as error:
            if error.status != 404:
                raise

    # ------------------------------------------------------------------ pods

    def logs(self, namespace: str, name: str, container: str, lines: int | None = None) -> str:
        """Return a container's output, or its last `lines` lines."""
        query = {"container": container, **({"tailLines": str(lines)} if lines else {})}
        data = self._answer("GET", _path("Pod", namespace, name) + "/log", query)
        return redact(data.decode(errors="replace"))

    def execute(
        self,
        namespace: str,
        name: str,
        container: str,
        command: Sequence[str],
        timeout_s: float,
    ) -> Executed:
        """Run a command in a container, and wait for the end.

        Raises:
            ProviderError: The command could not be run, or took longer than `timeout_s` seconds.
        """
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        path = _path("Pod", namespace, name) + "/exec?"
        path += urlencode([*query, *(("command", one) for one in command)])
        module = sdk().stream.ws_client
        url = module.get_websocket_url(self._configuration.host + path)
        deadline = time.monotonic() + timeout_s
        try:
            socket = module.WSClient(self._configuration, url, self._headers(), False, binary=True)
            try:
                socket.run_forever(timeout_s)
                if time.monotonic() >= deadline and socket.is_open():
                    raise ProviderError(f"{command[0]} took longer than {timeout_s:g} s")
                out, err = socket.read_channel(1), socket.read_channel(2)
                status = json.loads(socket.read_channel(3) or b"{}")
            finally:
                socket.sock.shutdown()  # `close` does not, if the other end has closed
        except ProviderError:
            raise
        except Exception as error:  # WebSocket errors: many classes without a common base
            raise ProviderError(redact(f"{command[0]} could not be run: {error}")) from None
        return Executed(
            _exit_code(command[0], status),
            bytes(out or b"").decode(errors="replace"),  # "" stands for b"" in older versions
            bytes(err or b"").decode(errors="replace"),
        )

    def forwarding(self, namespace: str, name: str, port: int) -> WebSocketAddress:
        """Return the address of the WebSocket that leads to a pod's port."""
        configuration = self._configuration
        path = f"{_path('Pod', namespace, name)}/portforward?ports={port}"
        scheme, _, rest = configuration.host.partition("://")
        is_tls = scheme == "https"
        return WebSocketAddress(
            f"{'wss' if is_tls else 'ws'}://{rest}{path}",
            self._headers(),
            self._tls() if is_tls else None,
            getattr(configuration, "tls_server_name", None) or urlsplit(configuration.host).hostname
            if is_tls
            else None,
            configuration.proxy or None,
        )

    # ------------------------------------------------------------------ requests

    def _headers(self) -> dict[str, str]:
        settings = self._configuration.auth_settings().get("BearerToken")
        value = settings and settings.get("value")
        return {"authorization": str(value)} if value else {}

    def _tls(self) -> ssl.SSLContext:
        configuration = self._configuration
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif configuration.ssl_ca_cert or getattr(configuration, "ca_cert_data", None):
            context.load_verify_locations(
                configuration.ssl_ca_cert, cadata=getattr(configuration, "ca_cert_data", None)
            )
        else:
            context.load_default_certs()
        if configuration.assert_hostname is False:
            context.check_hostname = False
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        return context

    def _asked(self, method: str, path: str, *arguments: Any) -> Manifest:
        answer: Manifest = read_json(self._answer(method, path, *arguments))
        return answer

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        kind: str = "application/json",
    ) -> bytes:
        """Send a request and return the response's body; retry while the server is busy."""
        url = self._configuration.host + path + (f"?{urlencode(query)}" if query else "")
        began = time.monotonic()
        for left in reversed(range(TRIES)):
            pause = backoff_s(TRIES - left, FIRST_PAUSE_S)
            try:
                status, data, wait = self._once(method, url, body, kind)
            except OSError as error:
                if left and time.monotonic() - began < UNREACHABLE_S:
                    time.sleep(pause)
                    continue
                host = self._configuration.host
                text = redact(f"the API server of the cluster does not answer at {host}: {error}")
                raise ClusterError(text, status=0) from None
            if 200 <= status < 300:
                return data
            reason, words = _words(status, data)
            may_pass = status in BUSY or (method == "POST" and reason == "Conflict")  # quota
            if status == 500:  # some versions also send this for invalid requests
                may_pass = "timed out" in words or "leader changed" in words
            if left and may_pass:
                time.sleep(min(wait or pause, 10.0))
                continue
            if method == "POST" and reason == "AlreadyExists" and left < TRIES - 1:
                raise _Twice
            raise ClusterError(redact(words), status=status, reason=reason)
        raise AssertionError("unreachable")

    def _once(
        self, method: str, url: str, body: bytes | None, kind: str
    ) -> tuple[int, bytes, float]:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        silence_s = SILENCE_S if self._has_answered else FIRST_ANSWER_S
        headers = {**self._headers(), "accept": "application/json, */*"}
        if body is not None:
            headers["content-type"] = kind
        timeout = Timeout(connect=CONNECT_S, read=silence_s)
        try:
            response = self._pool.request(
                method, url, body=body, headers=headers, timeout=timeout, retries=False
            )
        except HTTPError as error:
            raise OSError(str(error)) from None
        self._has_answered = True
        wait = 0.0
        with contextlib.suppress(ValueError):
            wait = float(response.headers.get("retry-after") or 0)
        return int(response.status), bytes(response.data), wait


class _Twice(Exception):
    """Raised if a retry to create an object finds the object."""


def _close(pool: Any) -> None:
    with contextlib.suppress(Exception):  # the pool is no longer used
        pool.clear()


def _told(manifest: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return str(manifest["kind"]), str(metadata["namespace"]), str(metadata["name"])


def _path(kind: str, namespace: str, name: str = "") -> str:
    group, plural = PLACES[kind]
    path = f"{group}/namespaces/{quote(namespace, safe='')}/{plural}"
    return f"{path}/{quote(name, safe='')}" if name else path


def _words(status: int, data: bytes) -> tuple[str, str]:
    with contextlib.suppress(ValueError, AttributeError):
        said = read_json(data)
        return str(said.get("reason") or ""), str(said.get("message") or f"status {status}")
    return "", data.decode(errors="replace").strip() or f"status {status}"


def _exit_code(program: str, status: Mapping[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    words = status.get("message") or "the connection was cut"
    raise ProviderError(redact(f"{program} could not be run: {words}"))
