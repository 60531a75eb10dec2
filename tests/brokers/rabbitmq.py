"""A real RabbitMQ for tests: one node or three that use nothing outside their folder."""

import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Final
from urllib.parse import quote

from tests.brokers.broker import Broker
from tests.brokers.node import Node
from tests.brokers.runtime import Runtime
from tests.brokers.security import Authority

_READY: Final = b"Server startup complete"  # logged once it accepts connections
_WITHOUT_EPMD: Final = "rabbit_sup:stop_child(rabbit_epmd_monitor_sup)."
_EXTERNAL: Final = {
    "auth_mechanisms.1": "PLAIN",
    "auth_mechanisms.2": "EXTERNAL",
    "ssl_options.fail_if_no_peer_cert": "true",
    "ssl_cert_login_from": "common_name",
}


class RabbitMQ(Broker):
    """It listens without and with TLS, and has the user guest with the password guest.

    Settings of its application are changed while it runs by `ctl("eval", "application:set_env(rabbit, name, 1).")`, an
    alarm is raised by `ctl("set_vm_memory_high_watermark", "0.000001")` and ended with "0.4".
    """

    kind = "RabbitMQ"

    def __init__(
        self, runtime: Runtime, directory: Path, *, settings: Mapping[str, str], external: bool, nodes: int = 1
    ) -> None:
        """Write its configuration into `directory`, which is new and private to it.

        `settings`: lines of rabbitmq.conf. `external`: whether clients of TLS must show a certificate of `certify`,
        by which they may log in without a password (EXTERNAL). `nodes`: 1, or 3 for a cluster.
        """
        super().__init__(directory)
        self._amqp = [self._port() for _ in range(nodes)]
        self._amqps = [self._port() for _ in range(nodes)]
        self._signer = Authority(self.authority)
        certificate = directory / "certificate.pem"
        self._signer.certify(certificate)
        lines = {
            "ssl_options.cacertfile": str(self.authority),
            "ssl_options.certfile": str(certificate),
            "ssl_options.keyfile": str(certificate),
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
            "log.file": "false",
            "log.console": "true",
            "log.console.level": "info",
            "log.console.use_colors": "off",
            "log.connection.level": "warning",
            "disk_free_limit.absolute": "1MB",
            **(_EXTERNAL if external else {}),
            **settings,
        }
        plugins = "[rabbitmq_auth_mechanism_ssl]." if external else "[]."
        (directory / "plugins").write_text(plugins, "utf-8")
        (directory / "environment").touch()
        cookie = directory / ".erlang.cookie"
        cookie.write_text(token_hex(), "utf-8")
        cookie.chmod(0o400)
        self._programs = runtime.call
        self._names: list[str] = []
        self._environments: list[str] = []
        self._ports = self._port() if nodes > 1 else None
        self._epmd = None if self._ports is None else _epmd(runtime, directory, self._ports)
        self.nodes = []
        for at in range(nodes):
            listening = {
                "listeners.tcp.1": f"127.0.0.1:{self._amqp[at]}",
                "listeners.ssl.1": f"127.0.0.1:{self._amqps[at]}",
            }
            name = f"node-{at + 1}"
            text = "".join(f"{key} = {value}\n" for key, value in (listening | lines).items())
            (directory / f"{name}.conf").write_text(text, "utf-8")
            self._names.append("rabbit@localhost" if nodes == 1 else f"rabbit{at + 1}@localhost")
            environment = _environment(directory / name, self._names[at], self._port(), self._ports)
            self._environments.append(environment)
            # 3.10 counts three files for each quorum queue, and takes no connection any more when there are none left
            script = f'ulimit -n "$(ulimit -Hn)"; exec {environment} {runtime.call}rabbitmq-server'
            self.nodes.append(Node(runtime.run, script, directory / name, _READY))

    def start(self) -> None:
        """Start all nodes, and make a cluster of them the first time."""
        if self._epmd is not None and not self._epmd.running:
            self._epmd.start()
        super().start()
        for at, name in enumerate(self._names[1:], 1):
            if name not in self.ctl("eval", "rabbit_nodes:all_running()."):
                self.ctl("stop_app", node=at)
                self.ctl("join_cluster", self._names[0], node=at)
                self.ctl("start_app", node=at)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it, with the book of its ports."""
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self._epmd is not None:
                self._epmd.kill()

    @property
    def address(self) -> str:
        """`url`."""
        return self.url

    @property
    def url(self) -> str:
        """`amqp://…` of the user guest in the virtual host `/`."""
        return self.url_of()

    @property
    def tls_url(self) -> str:
        """The same as `amqps://…`; `authority` has signed the certificate that it shows."""
        return f"amqps{self.url_of(port=self._amqps[0]).removeprefix('amqp')}"

    def url_of(self, *, user: str = "guest", password: str = "guest", vhost: str = "/", port: int = 0) -> str:  # noqa: S107
        """Return `amqp://…` of a user and a virtual host, whether they are there or not; by default of all nodes."""
        who = f"{quote(user, safe='')}:{quote(password, safe='')}"
        servers = ",".join(f"127.0.0.1:{each}" for each in ([port] if port else self._amqp))
        return f"amqp://{who}@{servers}/{quote(vhost, safe='')}"

    def certify(self, certificate: Path, user: str) -> None:
        """Write a private key and a certificate for `user`, which need not be there, as PEM."""
        self._signer.certify(certificate, user)

    def ctl(self, *arguments: str, node: int = 0) -> str:
        """Return what `rabbitmqctl --quiet …` prints (0.5 s); AssertionError with what it said where it fails."""
        command = f"{self._environments[node]} {self._programs}rabbitmqctl {shlex.join(['-q', *arguments])}"
        return self.nodes[node].beside(command)

    def isolate(self, node: int) -> None:
        """Cut a node of a cluster off from the others; end that with `join`."""
        for name in self._names:
            if name != self._names[node]:
                self.ctl("eval", f"erlang:set_cookie('{name}', other), erlang:disconnect_node('{name}').", node=node)

    def join(self, node: int) -> None:
        """Connect a node that was isolated with the others again."""
        for name in self._names:
            self.ctl("eval", f"erlang:set_cookie('{name}', erlang:get_cookie()).", node=node)

    def pause(self) -> None:
        """Let it neither run nor end, as on a machine that hangs; end that with `resume`, `kill` or the context."""
        self.nodes[0].send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.nodes[0].send(signal.SIGCONT)


def _environment(data: Path, name: str, peers: int, book: int | None) -> str:
    """Return the command that runs a program of RabbitMQ with nothing of the machine's own configuration.

    `peers`: the port where the node listens for nodes and rabbitmqctl. `book`: that of the cluster's epmd, where its
    nodes find each other's ports; a single node needs none. The machine's own epmd would outlive the tests.
    """
    directory = data.parent
    found = "-start_epmd false" + ("" if book else f" -erl_epmd_port {peers}")
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    listening = f"-kernel inet_dist_listen_min {peers} -kernel inet_dist_listen_max {peers} {loopback}"
    variables = {
        "HOME": str(directory),  # the cookie
        "LANG": "C.UTF-8",
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(peers),
        "RABBITMQ_MNESIA_BASE": str(data),
        "RABBITMQ_LOG_BASE": str(data),
        "RABBITMQ_CONFIG_FILE": str(data),
        "RABBITMQ_CONFIG_FILES": str(directory / "none"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
        # else the script stays as the parent, and a signal for the node ends at the script
        "RABBITMQ_ALLOW_INPUT": "1",
        # A node that has its name from the start does not start epmd either, but a part of it would every minute.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput -sname {name} {found} {listening} -eval {_WITHOUT_EPMD}",
        "RABBITMQ_CTL_ERL_ARGS": f"{found} -dist_listen false",
        **({"ERL_EPMD_PORT": str(book), "ERL_EPMD_ADDRESS": "127.0.0.1"} if book else {}),
    }
    return f'env -i "PATH=$PATH" {shlex.join(f"{name}={value}" for name, value in variables.items())}'


def _epmd(runtime: Runtime, directory: Path, port: int) -> Node:
    """Return the book of the cluster's ports, which is Erlang's own program."""
    path = runtime.call.rpartition(" ")[0]
    return Node(
        runtime.run, f"{path} exec epmd -debug -port {port} -address 127.0.0.1", directory / "epmd", b"epmd running"
    )
