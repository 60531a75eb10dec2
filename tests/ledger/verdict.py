"""What is wrong with a book. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.ledger.book import Answer, Book, Handed, Sent


@dataclass(frozen=True)
class Verdict:
    """What one group was promised and did not get, by messageId, and the counts of what happened."""

    lost: list[str]
    """Answered stored, never delivered."""
    unexpected: list[str]
    """Delivered, but never sent, or every attempt was answered "not stored", or with another body."""
    doubled: list[str]
    """Delivered although as many copies as there can be had been acknowledged."""
    disordered: list[str]
    """First delivered before the one that was stored before it, of the same key, was acknowledged."""
    counts: dict[str, int]

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.unexpected or self.doubled or self.disordered)

    def __str__(self) -> str:
        faults = {name: getattr(self, name) for name in ("lost", "unexpected", "doubled", "disordered")}
        lines = [f"{name} {len(found)}{_examples(found)}" for name, found in faults.items()]
        return "; ".join([*lines, *(f"{name} {count}" for name, count in self.counts.items())])


def judge(book: Book, group: str) -> Verdict:
    """Judge what one group was given. Everything that is stored must have had the time to arrive."""
    by_name: defaultdict[str, list[Handed]] = defaultdict(list)
    for handed in book.handed[group]:
        by_name[handed.name].append(handed)
    return Verdict(
        lost=[name for name, sent in book.sent.items() if sent.stored and name not in by_name],
        unexpected=[
            name
            for name, deliveries in by_name.items()
            if (sent := book.sent.get(name)) is None or not sent.copies or any(d.body != sent.body for d in deliveries)
        ],
        doubled=[name for name, handed in by_name.items() if name in book.sent and _too_often(book.sent[name], handed)],
        disordered=list(_disordered(book, by_name)),
        counts=_counts(book, by_name),
    )


def _too_often(sent: Sent, deliveries: list[Handed]) -> bool:
    """Whether there were deliveries that no unknown attempt and no missing acknowledgement explains."""
    copies = max(sent.copies, 1)  # one that was never stored is unexpected, not doubled
    done = sorted(handed.done for handed in deliveries if handed.done is not None)
    return len(done) > copies or (len(done) == copies and deliveries[-1].at > done[-1])


def _disordered(book: Book, by_name: dict[str, list[Handed]]) -> Iterator[str]:
    keys: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, sent in book.sent.items():
        if sent.key is not None and sent.stored and name in by_name:
            keys[sent.key].append((sent.sequence, name))
    for names in keys.values():
        for (_, before), (_, after) in pairwise(sorted(names)):
            asked = min((d.asked for d in by_name[before] if d.asked is not None), default=None)
            if asked is None or asked > by_name[after][0].at:
                yield after


def _counts(book: Book, by_name: dict[str, list[Handed]]) -> dict[str, int]:
    answers = [attempt.answer for sent in book.sent.values() for attempt in sent.attempts]
    deliveries = [handed for each in by_name.values() for handed in each]
    again = [handed for each in by_name.values() for handed in each[1:]]
    return {
        "messages": len(book.sent),
        "attempts": len(answers),
        "answered stored": answers.count(Answer.STORED),
        "answered not stored": answers.count(Answer.NOT_STORED),
        "answered unknown": answers.count(Answer.UNKNOWN),
        "bridges": len({handed.by for handed in deliveries}),
        "deliveries": len(deliveries),
        "repeated": len(again),
        "of those with deliveryCount 1": sum(handed.count == 1 for handed in again),
        "acknowledgements sent": sum(handed.asked is not None for handed in deliveries),
        "answered done": sum(handed.done is not None for handed in deliveries),
    }


def _examples(names: list[str]) -> str:
    return f" ({', '.join(names[:5])})" if names else ""
