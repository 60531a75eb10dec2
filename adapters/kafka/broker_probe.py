"""Asks the brokers whether one of them answers, on a connection that nothing else uses."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from kafka import errors as kafka

from adapters.kafka import errors
from adapters.kafka.connections import BOOTSTRAP_TIMEOUT, Client
from adapters.kafka.options import Options
from adapters.kafka.security import connection_settings
from bridge.errors import BackendUnavailable

_CLOSED: Final = "The connection to Kafka is closed."


class BrokerProbe:
    """A thread, and a connection to one broker at a time.

    The connection is separate from those that produce: a broker answers in order, so a produce that waits for replicas
    would delay the answer.
    """

    def __init__(self, options: Options) -> None:
        """Nothing is connected before the first question."""
        self._options = options
        self._thread = ThreadPoolExecutor(1, "kafka-probe")
        self._client: Client | None = None
        self._closed = False

    async def ask(self) -> None:
        """Return if a broker answers. Raises `BackendUnavailable` with the reason of the last attempt."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._ask)

    def unanswered(self) -> str:
        """Return why there is no answer yet."""
        client = self._client
        return errors.no_connection(self._options, None if client is None else client.connections.failure).detail

    def close(self) -> None:
        """Close the connection after the question under way, which ends soon. Idempotent."""
        if not self._closed:
            self._closed = True
            if (client := self._client) is not None:
                client.connections.closed = True  # ends attempts to connect
            self._thread.submit(self._disconnect)
            self._thread.shutdown(wait=False)

    # On the thread

    def _ask(self) -> None:
        if self._client is not None:
            try:
                self._client._net.run(self._any_broker_answers, self._client)  # noqa: SLF001 - has no other way
            except Exception:  # noqa: BLE001 - of any kind: the servers of the URL are asked anew
                self._disconnect()
            else:
                self._client.connections.failure = None  # of an earlier outage
                return
        self._connect()

    def _connect(self) -> None:
        """Ask the servers of the URL, and remember the brokers that they name."""
        if self._closed:
            raise BackendUnavailable(_CLOSED)
        settings = connection_settings(self._options) | {"request_timeout_ms": BOOTSTRAP_TIMEOUT}
        self._client = client = Client(**settings)
        try:
            client.connections.bootstrap(BOOTSTRAP_TIMEOUT)
        except Exception as error:
            self._disconnect()
            raise errors.no_connection(self._options, client.connections.failure or error) from error

    async def _any_broker_answers(self, client: Client) -> None:
        """Ask one broker after the other, the connected one first. Raises the last one's error."""
        known, failure = [broker.node_id for broker in client.cluster.brokers()], kafka.NodeNotReadyError()
        for node in sorted(known, key=client.is_disconnected):
            try:
                await client.cluster.refresh_metadata(node)
            except kafka.KafkaError as error:
                failure = error
            else:
                return
        raise failure

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # a connection that is broken in any way is closed all the same
                client.close()
