"""`mirror fetch-jars`: what Spark lacks, for an image or for `spark-submit`."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import click

from bridge.mirror.commands.stated import stated


@click.command("fetch-jars")
def fetch_jars() -> None:
    """Fetch the jars of Delta Lake, S3 and Kafka's connector with Maven, unless they are there, and print their paths.

    The paths are separated by commas, as `spark-submit` takes them.

    \b
    spark-submit --jars "$(oms-bridge mirror fetch-jars)" …
    """
    with stated():
        from bridge.mirror.jars import spark_jars

        click.echo(",".join(map(str, spark_jars())))
