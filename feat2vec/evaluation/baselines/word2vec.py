"""word2vec: skip-gram with negative sampling (Mikolov et al., 2013), as gensim implements it."""

from __future__ import annotations

from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package


def word2vec(request: BaselineRequest) -> Metrics:
    """Skip-gram of gensim, of the same sentences, window, subsampling, dimensions and epochs."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise missing_package("word2vec", "gensim") from None
    from feat2vec.evaluation.key_pairs import pair_similarities

    assert request.corpus is not None
    schema = request.run.schema
    model = Word2Vec(
        list(request.corpus.sentences()),
        vector_size=schema.model.dim,
        window=request.window,
        min_count=1,
        sg=1,
        negative=request.negatives,
        shrink_windows=not request.has_fixed_windows,
        sample=request.subsample,
        epochs=schema.training.epochs,
        seed=schema.training.seed,
        workers=2,
    )
    return pair_similarities(request.test, model.wv)


WORD2VEC = Baseline("word2vec", "pairs", word2vec, needs_corpus=True)
