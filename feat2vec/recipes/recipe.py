"""A recipe's options: data, schema, training, evaluation, export and what is expected of them, in one YAML file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from feat2vec.evaluation.baselines import BaselineName
from feat2vec.evaluation.options import Measurement
from feat2vec.export.formats import FormatName
from feat2vec.pages.explore_options import MapKind
from feat2vec.recipes.ranges import Tune
from feat2vec.recipes.windows import CountWeights, Reach
from feat2vec.schema.document import KeyPath
from feat2vec.schema.extractor_options import Count, Many, Share, Text
from feat2vec.schema.validation import Spec
from feat2vec.training.fine_tuning_options import HeadType, ObjectiveType

PARTS = ("train", "validation", "test")
Seed = Annotated[int, Field(ge=0)]


class Ask(Spec):
    """A table that the user gives, by `--data`; `ask` says what it is."""

    ask: Text


class CorpusSpec(Spec):
    """Rows of texts become rows of a word and a word near it: pairs, or (with `counts`) how often."""

    column: Text
    window: Count = 5
    min_count: Count = 5
    subsample: Annotated[float, Field(ge=0, le=1)] = 0.0
    counts: bool = False
    seed: Seed = 0
    # How far a word reaches. random: at most b words, b uniform in 1 .. `window`, so that near words count more; fixed:
    # `window` words. By default random for pairs and fixed for counts.
    reach: Reach | None = None
    # What a pair counts that is d words apart. By default inverse_distance, 1 / d; plain: 1.
    count_weights: CountWeights | None = None
    # Each word's window is also paired with so many words that are drawn at random, its fake centres: a column `label`
    # is 1 for what the texts have and 0 for these, which `objective: {type: logistic, target: label}` learns.
    fake_centres: Count | None = None
    fake_alpha: Annotated[float, Field(ge=0, le=10)] | None = None  # the power of counts that they are drawn by, 0.75
    tied: bool = False  # whether the schema's group of the column `context` shares the vectors of that of `word`

    @property
    def chosen_reach(self) -> Reach:
        """How far a word reaches, with the default filled in."""
        return self.reach or ("fixed" if self.counts else "random")

    def study_facts(self) -> dict[str, Any]:
        """What rows follow from; without options that are not given, so that studies of before they were can go on."""
        return self.model_dump(mode="json", exclude={"tied"}, exclude_none=True)


class Split(Spec):
    """Shares of a part's rows, drawn at random, that become the other parts."""

    of: Literal["train", "validation"] = "train"
    validation: Share = 0.0
    test: Share = 0.0
    seed: Seed = 0

    def parts(self) -> dict[str, float]:
        """The parts that are drawn, with their shares."""
        shares = {"validation": self.validation, "test": self.test}
        return {part: share for part, share in shares.items() if share}


class Bound(Spec):
    """What a number may be; with `of`, in units of what that baseline reaches."""

    min: float | None = None
    max: float | None = None
    of: BaselineName | None = None


class Evaluation(Measurement):
    """A measurement on a part of the rows, the baselines beside it, and what is expected."""

    data: Text = "test"
    beside: Annotated[tuple[BaselineName, ...], Many] = ()
    matrix: Annotated[tuple[Text, ...], Many] | None = None  # the rows and columns for svd, als and soft_impute
    expect: dict[str, Bound] = Field(default_factory=dict)


class Neighbours(Spec):
    """The values nearest to one, printed."""

    group: Text
    key: Text
    to: Text | None = None
    n: Count = 5


class ExportSpec(Spec):
    """An export, into the run's folder `exports`."""

    format: FormatName
    groups: Annotated[tuple[Text, ...], Many] | None = None
    level: Count | None = None
    normalise: bool = False


class PageSpec(Spec):
    """The page of `feat2vec explore`, as the file map.html of the run's folder."""

    groups: Annotated[tuple[Text, ...], Many] = ()
    data: Text | None = None
    colour: Text | None = None
    map: MapKind = "pca"


class Mark(Spec):
    """A straight line of a figure: a model, or a submodel of it."""

    model: Text
    level: Count | None = None


class Figure(Spec):
    """The loss of models by their rank, and that of others beside it."""

    title: Text
    line: Annotated[tuple[Text, ...], Many, Field(min_length=1)]
    beside: dict[Text, Mark] = Field(default_factory=dict)


class Compare(Spec):
    """Models that are trained on the same rows, each by the recipe's schema with settings of its own."""

    # By name, what replaces the schema's keys, as `--set` does; a model without settings is the recipe's own run.
    models: Annotated[dict[Text, dict[str, Any]], Field(min_length=1)]
    data: Text = "test"
    # By title, the rows of a table; of several models a row shows the one that the validation rows choose.
    tables: dict[Text, dict[Text, Annotated[tuple[Text, ...], Many, Field(min_length=1)]]] = Field(default_factory=dict)
    figure: Figure | None = None


class Finetuning(Spec):
    """A run that predicts a column, learnt from the vectors of the first one."""

    target: Text
    head: HeadType = "fm"
    freeze: bool = False
    objective: ObjectiveType | None = None
    groups: Annotated[tuple[Text, ...], Many] | None = None
    scratch: bool = True  # with the head mlp: learn from scratch too, and predict the mean of both
    set: dict[str, Any] = Field(default_factory=dict)
    evaluate: Annotated[tuple[Evaluation, ...], Many] = ()


class Recipe(Spec):
    """The whole file."""

    version: Literal[1]
    name: Text
    about: str = ""
    data: Annotated[dict[str, Text | Ask], Field(min_length=1)]
    rows: Text | None = None
    corpus: CorpusSpec | None = None
    split: Split = Split()
    schema_: Text | dict[str, Any] = Field(alias="schema")
    evaluate: Annotated[tuple[Evaluation, ...], Many] = ()
    similar: Annotated[tuple[Neighbours, ...], Many] = ()
    export: Annotated[tuple[ExportSpec, ...], Many] = ()
    page: PageSpec | None = None
    finetune: dict[str, Finetuning] = Field(default_factory=dict)
    compare: Compare | None = None
    tune: Tune | None = None

    def evaluations(self) -> Iterator[tuple[KeyPath, Evaluation]]:
        """Every measurement, and where it stands."""
        for i, evaluation in enumerate(self.evaluate):
            yield ("evaluate", i), evaluation
        for name, finetuning in self.finetune.items():
            for i, evaluation in enumerate(finetuning.evaluate):
                yield ("finetune", name, "evaluate", i), evaluation

    def named_exports(self) -> dict[str, ExportSpec]:
        """The exports by the names of their folders: the format, with a number from the second of a format on."""
        named: dict[str, ExportSpec] = {}
        for spec in self.export:
            count = sum(earlier.format == spec.format for earlier in named.values()) + 1
            named[spec.format if count == 1 else f"{spec.format}-{count}"] = spec
        return named

    def parts(self) -> set[str]:
        """The names that a measurement can have as its `data`."""
        return {"train", *self.split.parts(), *self.data}
