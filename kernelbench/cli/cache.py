"""``kernelbench cache`` and ``kernelbench cache clear``."""

from __future__ import annotations

import sys

import click

from kernelbench.base.console import out, show
from kernelbench.base.errors import UsageError
from kernelbench.build import cache_listing, compiler
from kernelbench.cli.options import RecordOutput, json_option

CACHE_SCHEMA = "kernelbench.cache/1"
#: What the record has of an artefact: its path and last use are this machine's.
_TOLD = ("key", "name", "compiler", "bytes", "created", "build_s", "sha256")


@click.group("cache", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, json: RecordOutput) -> None:
    """Show compiled artefacts, or clear them.

    Artefacts are kept by the content of what made them, so clearing costs only time.
    KERNELBENCH_CACHE names the folder; by default it is below ~/.cache.

    \b
    Examples:
      kernelbench cache
      kernelbench cache clear --older-than 30 --yes
    """
    if context.invoked_subcommand is not None:
        if json.path is not None:
            raise UsageError("--json shows the cache; `cache clear` has no JSON", "leave it out")
        return
    entries = cache_listing.cache_entries()
    json.write({
        "schema": CACHE_SCHEMA,
        "folder": str(compiler.cache_dir()),
        "bytes": sum(entry.bytes for entry in entries),
        "entries": [{name: getattr(entry, name) for name in _TOLD} for entry in entries],
    })  # fmt: skip
    if not json.alone:
        _render(entries)


def _render(entries: list[cache_listing.CacheEntry]) -> None:
    total = sum(entry.bytes for entry in entries) / 1e6
    out.print(f"{compiler.cache_dir()}: {len(entries)} artefact(s), {total:.1f} MB")
    if not entries:
        return
    rows = [
        {
            "name": entry.name,
            "compiler": entry.compiler,
            "MB": f"{entry.bytes / 1e6:.2f}",
            "build s": f"{entry.build_s:.1f}",
            "created": entry.created,
            "key": entry.key[:12],
        }
        for entry in entries
    ]
    show(rows, right=("MB", "build s"))


@command.command("clear")
@click.option("--all", "everything", is_flag=True, help="Everything, build logs too (the default).")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Only artefacts not used for so many days.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(everything: bool, older_than: float | None, yes: bool) -> None:
    """Remove artefacts; the next use builds them anew."""
    if everything and older_than is not None:
        raise UsageError("--all and --older-than exclude each other", "give one of them")
    entries = cache_listing.cache_entries()
    what = "all artefacts" if older_than is None else f"artefacts unused for {older_than:g} days"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("cache clear asks first, and there is no terminal", "give --yes")
        question = f"remove {what} (of {len(entries)}) from {compiler.cache_dir()}?"
        if not click.confirm(question):
            click.echo("nothing removed")
            return
    count, freed = cache_listing.clear_cache(older_than)
    click.echo(f"removed {count} artefact(s), {freed / 1e6:.1f} MB")
