"""Which modules are mutated, and which tests judge them."""

from typing import Final, NamedTuple


class Group(NamedTuple):
    """Modules that the same tests concern."""

    modules: tuple[str, ...]
    """Paths from the root of the repository; a `*` stands for every module of the folder."""
    tests: tuple[str, ...]
    """Files and folders. For each mutant only those tests run that call the mutated function."""


TABLE: Final = (
    Group(("bridge/wire/*", "bridge/errors.py"), ("tests/unit/wire",)),
    Group(("bridge/inflate.py",), ("tests/unit/wire", "tests/unit/adapters_kafka")),
    Group(("bridge/http/params.py",), ("tests/unit/test_http_params.py", "tests/unit/test_http_path_templates.py")),
    Group(("bridge/engine/*",), ("tests/unit/engine",)),
    Group(
        ("bridge/callbacks/*",),
        (
            "tests/unit/callbacks",
            "tests/security/test_callback_addresses.py",
            "tests/security/test_callback_egress.py",
            "tests/security/test_callback_guard.py",
            "tests/security/test_callback_signing.py",
            "tests/security/test_callback_targets.py",
        ),
    ),
    Group(
        tuple(
            f"adapters/{name}.py"
            for name in ("field_headers", "gzip_stored_plain", "range_set", "native_headers", "url_options")
        ),
        ("tests/unit/test_adapters_range_set.py", "tests/unit/adapters_kafka", "tests/unit/adapters_rabbitmq"),
    ),
    Group(
        tuple(
            f"adapters/kafka/{name}.py"
            for name in (
                *("mapping", "names", "options"),
                *("consume/commit_metadata", "consume/settled_ranges"),
                *("delay/dispatch", "delay/schedule"),
            )
        ),
        ("tests/unit/adapters_kafka",),
    ),
    Group(
        tuple(
            f"adapters/memory/{name}.py"
            for name in (
                "journal_batch",
                "capacity_and_retention",
                "group",
                "journal_directory",
                "options",
                "partition",
                "record",
                "journal_schema",
                "backend_state",
                "sqlite_wal",
            )
        ),
        ("tests/unit/adapters_memory",),
    ),
    Group(
        tuple(
            f"adapters/amqp/{name}.py"
            for name in ("deliveries", "publish_frames", "messages", "properties", "settings", "field_tables")
        ),
        ("tests/unit/adapters_amqp", "tests/unit/adapters_rabbitmq"),
    ),
    Group(
        (
            "adapters/rabbitmq/consume/prefetch_window.py",
            "adapters/rabbitmq/consume/partition_state.py",
            "adapters/rabbitmq/delay/levels.py",
            "adapters/rabbitmq/group/assignment.py",
            *(f"adapters/rabbitmq/{name}.py" for name in ("headers", "mapping")),
            *(f"adapters/rabbitmq/topology/{name}.py" for name in ("names", "records")),
            "adapters/rabbitmq/options.py",
        ),
        ("tests/unit/adapters_rabbitmq",),
    ),
)
"""Without input and output, except in `bridge/callbacks`, whose tests connect to ports of this machine."""

LEFT_OUT: Final = (
    "tests/unit/adapters_kafka/test_kafka_settled_ranges.py::test_whatever_is_settled_when_fetching_pauses_is_in_the_commit",
    "tests/unit/adapters_memory/test_memory_crash.py",
    "tests/unit/engine/test_engine_prefetch_buffer.py::test_the_outcomes_of_leases_are_kept_in_bounded_memory",
    "tests/unit/engine/test_engine_producer.py::test_a_batch_that_waits_holds_no_bodies",
    "tests/security/test_callback_guard.py::test_it_holds_on_uvloop",
)
"""Tests that judge no mutant.

With a counter in every function the first takes minutes, others half of one; the counters hold the arguments, whose
references the test of the bodies counts.
"""
