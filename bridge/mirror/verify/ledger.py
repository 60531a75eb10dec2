"""A producer's ledger beside the mirror: each confirmed message exactly once."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bridge.errors import CannotStart
from bridge.mirror import read
from bridge.mirror.sink.files import Files
from bridge.mirror.verify.judge import Ledger, Told


def reconcile(spark: SparkSession, rows: DataFrame, ledger: str, names: int | None) -> Ledger:
    """Compare. Of what is missing, and of what is there too often, at most `names` have names (None: all).

    Raises `CannotStart`.
    """
    confirmed = _confirmed(spark, ledger)
    there = rows.groupBy("message_id", "area", F.col("destination").alias("at")).count()
    # a line that names no destination means the message, not the copy that was buried
    same = F.when(F.col("destination").isNull(), F.col("area") == "data").otherwise(F.col("destination") == F.col("at"))
    told = (
        confirmed.join(there, (F.col("messageId") == F.col("message_id")) & same, "left")
        .groupBy("messageId", "destination", "confirmed")
        .agg(F.coalesce(F.sum("count"), F.lit(0)).alias("copies"))
    )
    total, missing, doubled = told.agg(
        F.coalesce(F.sum("confirmed"), F.lit(0)),
        F.count_if(F.col("copies") < F.col("confirmed")),
        F.count_if(F.col("copies") > F.col("confirmed")),
    ).collect()[0]
    if not missing and not doubled:
        return Ledger(total)
    named = []
    for wrong in ("copies < confirmed", "copies > confirmed"):
        first = told.where(wrong).orderBy("messageId", "destination")
        named += (first if names is None else first.limit(names)).collect()
    return Ledger(total, missing, doubled, [Told(*row) for row in named])


def _confirmed(spark: SparkSession, ledger: str) -> DataFrame:
    """Return how often each message was confirmed."""
    if not Files(spark, ledger).exists(""):
        raise CannotStart(f"ledger: there is no file {ledger}.")
    lines = read.reader(spark).schema("messageId string, destination string").json(ledger)
    if bad := lines.where("messageId is null").count():
        raise CannotStart(f"ledger: {bad} lines of {ledger} are no JSON object with a messageId.")
    return lines.groupBy("messageId", "destination").agg(F.count("*").alias("confirmed"))
