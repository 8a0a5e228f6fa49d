"""The baselines that can be put beside a run, by a recipe or by `evaluate --beside`, one file each.

`BASELINES` is the one list of them. TensorFlow and the libraries of the baselines are imported only when a baseline is
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.evaluation.baselines.boosting import BOOSTING
from feat2vec.evaluation.baselines.constant import CONSTANT
from feat2vec.evaluation.baselines.linear import LINEAR
from feat2vec.evaluation.baselines.matrices import ALS, SOFT_IMPUTE, SVD
from feat2vec.evaluation.baselines.pca import PCA, PCA_LINEAR
from feat2vec.evaluation.baselines.pmi_svd import PMI_SVD
from feat2vec.evaluation.baselines.popularity import POPULARITY
from feat2vec.evaluation.baselines.tfidf import TFIDF
from feat2vec.evaluation.baselines.word2vec import WORD2VEC

BASELINES: Mapping[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        POPULARITY,
        TFIDF,
        PCA,
        CONSTANT,
        LINEAR,
        PCA_LINEAR,
        BOOSTING,
        SVD,
        ALS,
        SOFT_IMPUTE,
        WORD2VEC,
        PMI_SVD,
    )
}

if TYPE_CHECKING:
    BaselineName: TypeAlias = str
else:
    BaselineName = Literal[tuple(BASELINES)]  # pydantic checks recipes by it

__all__ = ["BASELINES", "Baseline", "BaselineName", "BaselineRequest", "Metrics"]
