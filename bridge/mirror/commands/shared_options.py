"""Options that several commands of the mirror have."""

import click

out_option = click.option("--out", required=True, metavar="PATH", help="Path or URL of the mirror.")
after_option = click.option(
    *("--after", "minutes"),
    type=click.IntRange(0),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Take only hours that ended at least this long ago.",
)
