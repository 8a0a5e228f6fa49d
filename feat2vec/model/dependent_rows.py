"""The weights of dependent vectors, which may learn at a rate of their own (`training.dependent_rate`)."""

from __future__ import annotations

from feat2vec.model.extractors import LookupExtractor
from feat2vec.model.extractors.base import Headed
from feat2vec.model.optimizers.base import RowsOfVariable
from feat2vec.model.score_model import ScoreModel

ALL_ROWS = slice(None)


def dependent_rows(model: ScoreModel) -> list[RowsOfVariable]:
    """The weights below the level of their own value, as rows of variables.

    The keys of a level are the first ones of the level below, so a table has its dependent rows at its beginning; the
    first level has the row of the unseen key before them. What is no lookup, and a class, has the highest level.

    Args:
        model: A model that is built, whose levels are separate.

    Returns:
        The rows; none of a model of one level.

    """
    rows: list[RowsOfVariable] = []
    below_the_top = len(model.dims) - 1
    for extractor in model.extractors:
        if isinstance(extractor, LookupExtractor):
            for level, table in enumerate(extractor.tables[:below_the_top]):
                first = 1 if level == 0 else 0
                rows.append((table, slice(first, first + extractor.shape.sizes[level + 1])))
        elif isinstance(extractor, Headed):
            for head in extractor.heads[:below_the_top]:
                rows += [(weight, ALL_ROWS) for weight in head.weights]
    if model.schema.objective.has_classes:
        rows += [(vectors, ALL_ROWS) for vectors in model.class_vectors[:below_the_top]]
    return rows
