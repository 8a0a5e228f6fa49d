"""feat2vec's classes, registered with Keras: `keras.models.load_model` finds them after `import feat2vec.keras`.

Example:
    >>> import feat2vec.keras
    >>> keras.saving.get_registered_object("feat2vec>Feat2Vec") is feat2vec.keras.Feat2Vec
    True

"""

from __future__ import annotations

from feat2vec.model.extractors import (
    LookupExtractor,
    NumericExtractor,
    TextAttentionExtractor,
    TextCnnExtractor,
    VectorExtractor,
)
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.mlp import MlpHead
from feat2vec.model.optimizers import SparseAdagrad, SparseAdam, SparseFtrl, SparseSgd
from feat2vec.space.keras_models import GroupVectors

__all__ = [
    "Feat2Vec",
    "GroupVectors",
    "LookupExtractor",
    "MlpHead",
    "NumericExtractor",
    "SparseAdagrad",
    "SparseAdam",
    "SparseFtrl",
    "SparseSgd",
    "TextAttentionExtractor",
    "TextCnnExtractor",
    "VectorExtractor",
]
