"""The tables and the figure of compared models: as lines of text, and as a page of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from feat2vec.pages import charts
from feat2vec.recipes.compared import Measured, best_of
from feat2vec.recipes.recipe import Compare
from feat2vec.terminal import printable

NAME_WIDTH, NUMBER_WIDTH, BAR_WIDTH = 28, 12, 40


@dataclass(frozen=True)
class Row:
    """A line of a table: a label, and the model that it shows."""

    label: str
    model: Measured


@dataclass(frozen=True)
class ComparisonTables:
    """What a recipe compares, measured.

    Args:
        compare: What the recipe says of it.
        measured: Each model, by its name.
        marks: The models of the figure that are a straight line, by their labels.

    """

    compare: Compare
    measured: Mapping[str, Measured]
    marks: Mapping[str, Measured]

    def tables(self) -> dict[str, list[Row]]:
        """The rows of each table; of several models a row shows the one that the validation rows choose."""
        tables = {"all models": [Row(name, model) for name, model in self.measured.items()]}
        for title, models in self.compare.tables.items():
            tables[title] = [Row(label, best_of(names, self.measured)) for label, names in models.items()]
        return tables

    def curve(self) -> list[Measured]:
        """The models of the figure's line, by rank."""
        figure = self.compare.figure
        return [] if figure is None else sorted((self.measured[name] for name in figure.line), key=_rank)

    def lines(self) -> Iterator[str]:
        """Every table, and the figure, as text."""
        for title, rows in self.tables().items():
            yield "\n" + printable(title)
            heads, cells = cells_of(rows)
            yield _line(heads)
            for row in cells:
                yield _line([text_of(cell) for cell in row])
        yield from self._figure_lines()

    def _figure_lines(self) -> Iterator[str]:
        figure, curve = self.compare.figure, self.curve()
        if figure is None:
            return
        yield "\n" + printable(f"{figure.title}: loss")
        shown = [(model.name, model.loss) for model in curve] + [(name, m.loss) for name, m in self.marks.items()]
        low, high = min(loss for _, loss in shown), max(loss for _, loss in shown)
        for name, loss in shown:
            bar = "#" * (1 + round((BAR_WIDTH - 1) * (loss - low) / ((high - low) or 1.0)))
            yield f"{printable(name):{NAME_WIDTH}}{loss:>{NUMBER_WIDTH}.4f}  {bar}"

    def page(self, title: str) -> str:
        """The same as a page of HTML.

        Args:
            title: That of the page.

        """
        parts = []
        for table_title, rows in self.tables().items():
            heads, cells = cells_of(rows)
            parts.append(charts.table(table_title, heads, cells))
        figure, curve = self.compare.figure, self.curve()
        if figure is not None:
            series = {"by rank": [(float(model.rank), model.loss) for model in curve]}
            ends = [float(curve[0].rank), float(curve[-1].rank)]
            for label, model in self.marks.items():
                series[label] = [(rank, model.loss) for rank in ends]
            parts.append(charts.lines(figure.title, series, "rank", x_log=True))
        return charts.page(title, parts)

    def facts(self) -> dict[str, object]:
        """What `results.json` says: each model's numbers, and which model each line of a table shows."""
        tables = {title: {row.label: row.model.name for row in rows} for title, rows in self.tables().items()}
        return {
            "models": {name: model.facts() for name, model in self.measured.items()},
            "tables": tables,
            "figure": {label: model.facts() for label, model in self.marks.items()},
        }


Cell = str | int | float | None


def cells_of(rows: Sequence[Row]) -> tuple[list[str], list[list[Cell]]]:
    """The heads of a table and its cells; times stand beside those of the first row, which are 1x."""
    first = rows[0].model
    has_labels = first.rmse is None
    heads = ["", "log loss" if has_labels else "square loss", "AUC" if has_labels else "RMSE", "parameters", "cost"]
    heads += ["s/epoch", "s to the end", "train time", "test time"]
    cells: list[list[Cell]] = []
    for row in rows:
        model = row.model
        label = row.label if row.label == model.name else f"{row.label} ({model.name})"
        train_time = f"{model.epoch_seconds / first.epoch_seconds:.2f}x"
        test_time = f"{model.test_seconds / first.test_seconds:.2f}x"
        metric = model.auc if has_labels else model.rmse
        numbers: list[Cell] = [model.loss, metric, model.parameters, round(model.cost)]
        cells.append([label, *numbers, model.epoch_seconds, model.seconds, train_time, test_time])
    return heads, cells


def text_of(cell: Cell) -> str:
    """A cell as text: a count with its commas, another number to four digits."""
    if cell is None:
        return "-"
    return charts.number(cell) if isinstance(cell, (int, float)) else cell


def _line(cells: Sequence[str]) -> str:
    return f"{printable(cells[0]):{NAME_WIDTH}}" + "".join(f"{cell:>{NUMBER_WIDTH + 1}}" for cell in cells[1:])


def _rank(model: Measured) -> int:
    return model.rank
