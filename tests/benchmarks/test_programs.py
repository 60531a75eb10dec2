"""The programs that the benchmark starts: bare applications, the endpoint of callbacks, clients, and the profile."""

from itertools import pairwise
from urllib.request import Request, urlopen

import pytest

from benchmarks import mirror, profile, talk
from benchmarks.client import User
from benchmarks.launch import ROOMY, Process, bare, bridge, sink
from benchmarks.plan import QUICK
from benchmarks.rawh2 import Connection, pack
from benchmarks.reader import record
from benchmarks.revision import THIS


def post(url: str, body: bytes, **headers: str) -> None:
    urlopen(Request(url, data=body, headers=headers, method="POST"), timeout=10).close()  # noqa: S310 - our own process


@pytest.mark.parametrize("kind", ["hypercorn", "granian", "rsgi"])
def test_a_bare_application_streams_what_it_was_given(kind: str) -> None:
    recording = bytes(range(256)) * 600  # more than a piece
    with bare(kind) as process:
        connection = Connection(process.url)
        headers = [("content-length", str(len(recording)))]
        connection.ask(pack(process.url, "POST", talk.PUSH, headers), recording)
        connection.flush()
        while not connection.answers():
            pass
        connection.close()
        assert record(process.url, f"{talk.PUSH}?repeat=3", "*/*") == recording * 3
        assert not process.is_bridge
        assert process.counts() == {}
        assert process.cpu() > 0
        assert process.main_thread() > 0


def test_the_endpoint_counts_messages_and_posts() -> None:
    line = b'{"header":{"destination":"orders","messageId":"a"},"body":""}\n'
    with sink() as process:
        post(f"{process.url}/orders", b'{"id": 7}')
        post(f"{process.url}/orders", line * 3)
        with urlopen(f"{process.url}/4", timeout=10) as answer:  # noqa: S310
            seconds, posts = answer.read().split()
    assert float(seconds) > 0
    assert posts == b"2"


def test_what_was_counted_must_have_been_done() -> None:
    refused = pytest.raises(RuntimeError, match="produced grew by 2, not by 3")
    with bridge("granian") as process, refused, process.expecting(produced=3):
        talk.preload(process.url, "orders", 2)


@pytest.mark.extended
@pytest.mark.parametrize("master", ["", mirror.CLUSTER.format(executors=1)])
def test_the_mirror_is_measured_with_its_workers(master: str) -> None:
    with bridge("granian", ROOMY) as process:
        mirror._fill(process, 300)
        [flows] = mirror._flows(QUICK._replace(rounds=1), "memory://", process.url, master)
    assert [flow["rows"] for flow in flows] == [300, 300]
    assert all(flow["cpu"] > 0 and flow["seconds"] > 0 for flow in flows)


@pytest.mark.extended
def test_clients_are_measured() -> None:
    with bridge("granian") as process:
        user = User(THIS, process)
        with process.expecting(produced=164):
            assert _measured(user, "produce", 100)
        talk.preload(process.url, "orders", 200)
        with process.expecting(settled=164):
            assert _measured(user, "push", 100)
        with process.expecting(settled=150):
            assert user.print_raw("billing", 150).value > 0


def _measured(user: User, work: str, number: int) -> bool:
    sample = user.run(work, "orders", number)
    return sample.value > 0 and (sample.cpu or 0) > 0


def test_stacks_are_summed_up_by_function() -> None:
    stacks = ["run (a.py);parse (b.py) 6", "run (a.py);parse (b.py);parse (b.py) 1", "run (a.py) 3", " 50"]
    assert profile.functions(stacks) == [("parse (b.py)", 7, 7), ("run (a.py)", 3, 10)]


def test_the_flame_graph_of_the_docs_names_no_path_of_the_machine_that_drew_it() -> None:
    graph = profile.FLAMES.read_text("utf-8")
    assert "/py-spy" not in graph
    assert profile.titled(graph.replace(">The Python thread", ">/bin/py-spy --pid 1 The Python thread")) == graph


def test_the_profile_shares_out_the_cpu_of_one_produce() -> None:
    rows = [profile.Row(f"f{number} (a.py)", 10, 20) for number in range(profile.SHOWN + 3)]
    python = profile.SHOWN + 3.0
    table = profile.markdown(rows, python, everything=python + 12).splitlines()
    assert table[2] == "| `f0` | `a.py` | 1.0 | 2.0 |"
    assert table[-3:-1] == ["| 3 others | | 3.0 | |", "| the server's own threads | | 12.0 | |"]
    assert table[-1] == f"| all | | {python + 12:.1f} | |"
    assert all(first.count("|") == second.count("|") for first, second in pairwise(table))


def test_a_process_that_does_not_start_shows_its_log() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)broken did not start.*no such file"):
        Process("broken", ["/bin/sh", "-c", "echo no such file >&2"])
