"""The line on stderr of commands whose output, by itself, would not show that it is about a rehearsal."""

from __future__ import annotations

import click

from fabricheck.records.rehearsal import REHEARSAL


def say(rehearsal: bool) -> None:
    """Prints on stderr that the data are a rehearsal, if they are."""
    if rehearsal:
        click.echo(f"fabricheck: {REHEARSAL}: no measurement of hardware", err=True)
