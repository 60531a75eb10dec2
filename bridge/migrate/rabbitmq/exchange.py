"""What the exchange in front of a queue means for producers that move. Pure."""

from collections.abc import Iterator
from typing import Final

from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.rabbitmq.facts import Entry, Exchange, Traits

_ASK: Final = "rabbitmqctl list_exchanges name type durable internal shows it"
_USUAL: Final = frozenset({"direct", "topic", "fanout", "headers"})


def judge(exchange: Exchange | None, entry: Entry | None) -> Iterator[Finding]:
    """Yield findings for the exchange of the entry."""
    if entry is None:
        return
    if exchange is None:
        said = "Name it if it has other queues: without one, producers that move publish straight to this queue."
        yield Finding("exchange", "the entry names none", Verdict.DIFFERS, said)
        return
    if not exchange.there:
        said = "Correct the entry, or declare the exchange: the bridge would answer 404 or 503 to each produce."
        yield Finding("exchange", f"{exchange.name} is not there", Verdict.FAILS, said)
        return
    if exchange.traits is None:
        yield Finding("exchange", f"{exchange.name}, the user may not ask", Verdict.UNKNOWN, f"{_ASK}.")
        return
    yield _kind(exchange.name, exchange.traits, entry.existing.routing_key)


def _kind(name: str, traits: Traits, routing_key: str | None) -> Finding:
    marks = (("not durable", not traits.durable), ("auto-delete", traits.auto_delete), ("internal", traits.internal))
    seen = ", ".join([name, str(traits.kind), *(mark for mark, there in marks if there)])
    failing = (
        (traits.internal, "Name the exchange that producers publish to: nobody can to this one."),
        (traits.auto_delete, "Make one that stays: it goes with the last binding to it."),
        (not traits.durable, "Make a durable one: it goes with the broker, and the bridge does not make it anew."),
        (
            traits.kind == "headers",
            "Leave the entry without it: its bindings look for headers, a bridge writes oms_p_….",
        ),
    )
    differing = (
        (
            traits.kind not in _USUAL,
            "Look at what its plugin does with a message that has headers oms_h_… and one key.",
        ),
        (routing_key is None and traits.kind != "fanout", "Give the entry the routing_key that producers use."),
    )
    for cases, verdict in ((failing, Verdict.FAILS), (differing, Verdict.DIFFERS)):
        if said := next((said for case, said in cases if case), None):
            return Finding("exchange", seen, verdict, said)
    said = "Nothing to do: the bridge publishes with the entry's routing key, whatever key a native producer chose."
    return Finding("exchange", seen, Verdict.WORKS, said)
