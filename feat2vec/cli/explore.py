"""explore: a page to look at a run."""

from __future__ import annotations

from pathlib import Path

import click

from feat2vec.cli.console import say
from feat2vec.cli.process import import_tensorflow
from feat2vec.errors import UserError
from feat2vec.pages.explore_options import MAP_KINDS, POINTS_PER_MAP, MapKind

PORT = 8765


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--port", type=int, help=f"Where the page is served; 0 is any that is free.  [default: {PORT}]")
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page as a file that works alone; no server.")
@click.option("--group", "groups", multiple=True, help="Look at this group; may be given again. Default: all.")
@click.option("--data", help="Rows to look at as well (group `row`), and whose columns can be colours.")
@click.option("--colour", help="Colour by `count`, `level`, `cluster`, `topic of GROUP` or a column of --data first.")
@click.option(
    "--map",
    "kind",
    type=click.Choice(MAP_KINDS),
    default="pca",
    show_default=True,
    help="The map at first; a file has this one and pca.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=POINTS_PER_MAP,
    show_default=True,
    help="Points of a map: the most frequent values, or rows drawn by chance.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def explore(
    run: Path,
    port: int | None,
    show: bool,
    html: Path | None,
    groups: tuple[str, ...],
    data: str | None,
    colour: str | None,
    kind: MapKind,
    limit: int,
    force: bool,
) -> None:
    """A page to look at the space and search it: maps, colours, and what is nearest to what.

    It is served to this machine alone, until Ctrl-C. --html writes one file instead, with nothing from elsewhere.

    \b
    feat2vec explore runs/films
    feat2vec explore runs/films --data films.parquet --colour genres
    feat2vec explore runs/films --html films.html --map umap --group director --group cast
    """
    for option, is_given in (("--port", port is not None), ("--open", show)):
        if html is not None and is_given:
            raise UserError(f"{option}: is for the server, and --html needs none; remove one of them")
    if html is None and force:
        raise UserError("--force: replaces a file; name it by --html, or remove --force")
    import_tensorflow()
    from feat2vec.pages.explore import Atlas, Server, write_page
    from feat2vec.run import load

    atlas = Atlas(load(run), groups, data, colour, kind, limit)
    if html is not None:
        write_page(atlas, html, force=force, print_line=lambda text: say(text, error=True))
        say(f"{html}: written, {html.stat().st_size / 1e6:.1f} MB")
        return
    with Server(atlas, PORT if port is None else port) as server:
        say(f"{server.url}  (Ctrl-C ends it)")
        if show:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended", error=True)
