"""Names of topics and groups that the bridge makes, and the numbers of a destination's lanes."""

from adapters.kafka.names import LANES, PARTITIONS_MAX, Own, destination_of, handle, lane_of, member


def test_names_under_one_prefix() -> None:
    own = Own("oms.")
    assert (own.notes, own.transactions, own.forwarders) == ("oms.notes", "oms.transactions", "oms.forwarder")
    assert own.delay("8s") == "oms.delay.8s"


def test_a_priority_chooses_its_lane() -> None:
    lanes = [LANES[lane_of(priority)] for priority in (None, 1, 4, 5, 6, 10)]
    assert lanes == ["", ".oms-lo", ".oms-lo", "", ".oms-hi", ".oms-hi"]


def test_a_topic_of_a_lane_names_its_destination() -> None:
    for destination in ("orders", ".oms-hi", ".oms-lo.orders"):
        lanes = [lane for lane in LANES if lane or destination == "orders"]
        assert {destination_of(destination + lane) for lane in lanes} == {destination}


def test_a_partition_of_a_lane_is_one_number() -> None:
    assert handle(0, 7) == 7
    lanes, partitions = range(3), (0, 1, PARTITIONS_MAX - 1)
    numbers = [handle(lane, number, stay) for stay in range(3) for lane in lanes for number in partitions]
    assert numbers == sorted(set(numbers)), "each has its own"


def test_a_static_member_has_a_name_for_each_destination_that_kafka_takes() -> None:
    assert member("bridge-1", "orders") == "bridge-1.orders"
    longest = "x" * (248 - len("bridge-1"))
    assert member("bridge-1", longest) == f"bridge-1.{longest}"
    assert len(member("bridge-1", longest)) == 249
    longer = [member("bridge-1", longest + end) for end in ("a", "b")]
    assert len(set(longer)) == 2
    assert all(len(name) == len("bridge-1.") + 16 and name.startswith("bridge-1.") for name in longer)
    assert member("bridge-1", longest + "a") == longer[0], "the same after a restart"
