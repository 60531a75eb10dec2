"""A real RabbitMQ for tests: one node that nothing outside its folder knows of."""

import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.brokers.broker import Broker
from tests.brokers.node import Node
from tests.brokers.runtime import Runtime
from tests.brokers.security import Authority

_READY: Final = b"Server startup complete"  # logged once it accepts connections
_NODE: Final = "rabbit@localhost"
_WITHOUT_EPMD: Final = "rabbit_sup:stop_child(rabbit_epmd_monitor_sup)."
_EXTERNAL: Final = {
    "auth_mechanisms.1": "PLAIN",
    "auth_mechanisms.2": "EXTERNAL",
    "ssl_options.fail_if_no_peer_cert": "true",
    "ssl_cert_login_from": "common_name",
}


class RabbitMQ(Broker):
    """It listens without and with TLS, and knows the user guest with the password guest.

    Settings of its application are changed while it runs by `ctl("eval", "application:set_env(rabbit, name, 1).")`, an
    alarm is raised by `ctl("set_vm_memory_high_watermark", "0.000001")` and ended with "0.4".
    """

    kind = "RabbitMQ"

    def __init__(self, runtime: Runtime, directory: Path, *, settings: Mapping[str, str], external: bool) -> None:
        """Write its configuration into `directory`, which is new and private to it.

        `settings`: lines of rabbitmq.conf. `external`: whether clients of TLS must show a certificate of `certify`,
        by which they may log in without a password (EXTERNAL).
        """
        super().__init__(directory)
        self._amqp, self._amqps, peers = self._port(), self._port(), self._port()
        self._signer = Authority(self.authority)
        certificate = directory / "certificate.pem"
        self._signer.certify(certificate)
        lines = {
            "listeners.tcp.1": f"127.0.0.1:{self._amqp}",
            "listeners.ssl.1": f"127.0.0.1:{self._amqps}",
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
        (directory / "rabbitmq.conf").write_text(
            "".join(f"{name} = {value}\n" for name, value in lines.items()), "utf-8"
        )
        plugins = "[rabbitmq_auth_mechanism_ssl]." if external else "[]."
        (directory / "plugins").write_text(plugins, "utf-8")
        (directory / "environment").touch()
        self._environment = _environment(directory, peers)
        self._programs = runtime.call
        # 3.10 counts three files for each quorum queue, and takes no connection any more when there are none left
        script = f'ulimit -n "$(ulimit -Hn)"; exec {self._environment} {runtime.call}rabbitmq-server'
        self.nodes = [Node(runtime.run, script, directory / "node-1", _READY)]

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
        return f"amqps{self.url_of(port=self._amqps).removeprefix('amqp')}"

    def url_of(self, *, user: str = "guest", password: str = "guest", vhost: str = "/", port: int = 0) -> str:  # noqa: S107
        """Return `amqp://…` of a user and a virtual host, whether they are there or not."""
        who = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{who}@127.0.0.1:{port or self._amqp}/{quote(vhost, safe='')}"

    def certify(self, certificate: Path, user: str) -> None:
        """Write a private key and a certificate for `user`, which need not be there, as PEM."""
        self._signer.certify(certificate, user)

    def ctl(self, *arguments: str) -> str:
        """Return what `rabbitmqctl --quiet …` prints (0.5 s); AssertionError with what it said where it fails."""
        return self.nodes[0].beside(f"{self._environment} {self._programs}rabbitmqctl {shlex.join(['-q', *arguments])}")

    def pause(self) -> None:
        """Let it neither run nor end, as on a machine that hangs; end that with `resume`, `kill` or the context."""
        self.nodes[0].send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.nodes[0].send(signal.SIGCONT)


def _environment(directory: Path, peers: int) -> str:
    """Return the command that runs a program of RabbitMQ with nothing of the machine's own configuration.

    `peers`: the port where the node listens for its like and for rabbitmqctl. As that is told here, nothing needs epmd,
    the machine's book of such ports, which would outlive the tests.
    """
    found = f"-start_epmd false -erl_epmd_port {peers}"
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    listening = f"-kernel inet_dist_listen_min {peers} -kernel inet_dist_listen_max {peers} {loopback}"
    variables = {
        "HOME": str(directory),  # the cookie
        "LANG": "C.UTF-8",
        "RABBITMQ_NODENAME": _NODE,
        "RABBITMQ_DIST_PORT": str(peers),
        "RABBITMQ_MNESIA_BASE": str(directory / "node-1"),
        "RABBITMQ_LOG_BASE": str(directory / "node-1"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_CONFIG_FILES": str(directory / "none"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
        # else the script stays as the parent, and a signal for the node ends at the script
        "RABBITMQ_ALLOW_INPUT": "1",
        # A node that has its name from the start does not start epmd either, but a part of it would every minute.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput -sname {_NODE} {found} {listening} -eval {_WITHOUT_EPMD}",
        "RABBITMQ_CTL_ERL_ARGS": f"{found} -dist_listen false",
    }
    return f'env -i "PATH=$PATH" {shlex.join(f"{name}={value}" for name, value in variables.items())}'
