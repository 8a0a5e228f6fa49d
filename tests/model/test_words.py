"""Skip-gram through the library's model: the updates of one window, and the scores at which the losses are least."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.recipes.corpus import Corpus
from feat2vec.sampling.noise import Draw
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import open_table
from tests import reference
from tests.model.planted_rows import one_batch

pytestmark = pytest.mark.usefixtures("no_graphs")

Floats = npt.NDArray[np.float64]
RATE = 0.7
GROUPS = {"word": {"column": "word"}, "context": {"column": "context"}}
SGD = {"type": "sgd", "learning_rate": RATE, "decay": "none"}
LABELLED = {"objective": {"type": "logistic", "target": "label"}, "training": {"optimizer": SGD}}
COUNTS = np.array([[6, 1, 1], [1, 4, 2], [2, 1, 5]])  # [words, contexts]


def corpus(seed: int = 0) -> Corpus:
    """Sentences of five words and more, in which a word also stands twice in a window."""
    random = np.random.default_rng(seed)
    texts = [[f"w{i}" for i in random.integers(0, 7, random.integers(5, 9))] for _ in range(12)]
    return Corpus.read(open_table(pa.table({"text": texts})), "text")


def encoded(table: pa.Table, options: dict[str, Any], dim: int, groups: dict[str, Any] = GROUPS) -> Encoded:
    schema = {"version": 1, "groups": groups, "model": {"dim": dim, "scale": 0.5}, **options}
    return fit(read_schema(schema), table)


def keys_of(rows: Encoded, group: str) -> list[str]:
    vocabulary: Any = rows.encoder.codecs[group].vocabulary
    return vocabulary.keys.to_pylist()


def table_of(model: Feat2Vec, group: int) -> Floats:
    """The vectors of the group's keys, [keys, dim]; the row before them is that of unseen keys."""
    return model.extractors[group].tables[0].numpy()[1:].astype(np.float64)


def assign(model: Feat2Vec, group: int, vectors: Floats) -> None:
    model.extractors[group].tables[0].assign(np.concatenate([np.zeros((1, vectors.shape[1])), vectors]))


def windows(table: pa.Table) -> list[slice]:
    """The rows of one centre and its window each: as long as the word and the label stay the same."""
    words, labels = table["word"].to_pylist(), table["label"].to_pylist()
    starts = [i for i in range(len(words)) if i == 0 or (words[i], labels[i]) != (words[i - 1], labels[i - 1])]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]


def test_a_step_by_sgd_is_that_of_a_positive_or_a_negative_batch() -> None:
    """001: W <- W - eta grad J, of one centre against its window, and of a fake centre against the same window."""
    table = pa.Table.from_batches(corpus().pairs(2, reach="fixed", fake_centres=1, seed=1))
    rows = encoded(table, LABELLED, dim=3)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    model.compile()
    assert isinstance(model.optimizer, optimizers.SparseSgd)
    words, contexts = keys_of(rows, "word"), keys_of(rows, "context")
    w_1, w_2 = table_of(model, 0), table_of(model, 1)
    has_repeated_context = False
    inputs, labels = one_batch(model, rows)
    for number, part in enumerate(windows(table)[:24]):
        model.train_step(({name: entries[part] for name, entries in inputs.items()}, labels[part]))
        window = [contexts.index(word) for word in table["context"][part].to_pylist()]
        has_repeated_context |= len(set(window)) < len(window)
        centre, label = words.index(table["word"][part.start].as_py()), table["label"][part.start].as_py()
        assert label == (number + 1) % 2  # a positive batch, then the negative one of the same window
        of_w_1, of_w_2 = reference.window_gradients(w_1, w_2, centre, window, label)
        w_1, w_2 = w_1 - RATE * of_w_1, w_2 - RATE * of_w_2
        np.testing.assert_allclose(table_of(model, 0), w_1, atol=2e-6)
        np.testing.assert_allclose(table_of(model, 1), w_2, atol=2e-6)
    assert has_repeated_context
    assert np.abs(w_1 - table_of(Feat2Vec.from_encoder(rows.encoder), 0)).max() > 0.1


def factors(scores: Floats) -> tuple[Floats, Floats]:
    """Two factors of full dimension."""
    left, values, right = np.linalg.svd(scores)
    return left * np.sqrt(values), right.T * np.sqrt(values)


def pairs_of(counts: npt.NDArray[Any]) -> pa.Table:
    """As many rows of each pair as it counts."""
    words, contexts = (np.repeat(side.ravel(), counts.ravel()) for side in np.indices(counts.shape))
    return pa.table({"word": [f"w{w}" for w in words], "context": [f"c{c}" for c in contexts]})


def in_order_of_keys(scores: Floats, rows: Encoded) -> Floats:
    """Scores of w0, w1, .. and c0, c1, .. in the order in which the groups have them."""
    words = [int(key[1:]) for key in keys_of(rows, "word")]
    contexts = [int(key[1:]) for key in keys_of(rows, "context")]
    return scores[np.ix_(words, contexts)]


def skip_gram() -> tuple[Feat2Vec, Encoded]:
    """A model of as many dimensions as there are words, which negatives teach."""
    options = {"objective": "negative_sampling", "noise": {"targets": ["context"], "alpha_values": 1.0}}
    rows = encoded(pairs_of(COUNTS), options, dim=len(COUNTS))
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    return model, rows


def slopes_of_expected_loss(model: Feat2Vec, rows: Encoded) -> tuple[float, list[Floats]]:
    """The loss with every context of the rows as a negative of each of them, as many as rows, and its gradients.

    That is the loss which draws have in expectation, with as many negatives k as there are rows.
    """
    assert model.noise is not None
    inputs, values = one_batch(model, rows)
    seed = tf.constant([0, 0], tf.int64)
    (draw,) = model.noise.sample(values, seed)
    (unit,) = model.noise.units
    own = draw.rows[:, unit.column]  # [rows]
    negatives = tf.tile(own[None], [len(rows), 1])  # [rows, k]
    all_draws = Draw(
        draw.rows, draw.present, draw.log_q_positive, (negatives,), tf.zeros(negatives.shape), negatives == own[:, None]
    )
    tables = [extractor.tables[0].value for extractor in model.extractors]
    with tf.GradientTape() as tape:
        loss, _ = model.noise_loss_of_draws(inputs, [all_draws], seed, True)
    gradients = [tf.convert_to_tensor(gradient).numpy()[1:] for gradient in tape.gradient(loss, tables)]
    return float(loss), gradients


def test_negative_sampling_is_least_at_the_shifted_pmi() -> None:
    """Levy and Goldberg (2014): of full dimension, w c = PMI(w, c) - log k; the loss is convex in the scores."""
    model, rows = skip_gram()
    shifted = reference.pmi(COUNTS.astype(float)) - np.log(COUNTS.sum())
    for g, factor in enumerate(factors(in_order_of_keys(shifted, rows))):
        assign(model, g, factor)
    least, gradients = slopes_of_expected_loss(model, rows)
    assert max(np.abs(gradient).max() for gradient in gradients) < 1e-5
    elsewhere = reference.pmi(COUNTS.astype(float))  # without the shift
    for g, factor in enumerate(factors(in_order_of_keys(elsewhere, rows))):
        assign(model, g, factor)
    loss, gradients = slopes_of_expected_loss(model, rows)
    assert loss > least + 1
    assert max(np.abs(gradient).max() for gradient in gradients) > 0.1


def test_the_full_softmax_is_least_at_the_same_pmi() -> None:
    """003: log p(c | w) = w c + b_c - log Z_w; with b_c = log p(c) that is PMI, which needs no shift."""
    p = COUNTS / COUNTS.sum()
    words, contexts = (side.ravel() for side in np.indices(COUNTS.shape))
    table = pa.table(
        {"word": [f"w{w}" for w in words], "context": [f"c{c}" for c in contexts], "count": COUNTS.ravel()}
    )
    options = {"objective": {"type": "softmax", "target": "context", "weight": "count"}}
    rows = encoded(table, options, dim=len(COUNTS), groups={"word": GROUPS["word"]})
    assert rows.encoder.classes is not None
    class_order = [int(key[1:]) for key in rows.encoder.classes.keys.to_pylist()]
    word_order = [int(key[1:]) for key in keys_of(rows, "word")]
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)

    def largest_slope(scores: Floats) -> float:
        left, right = factors(scores[np.ix_(word_order, class_order)])
        assign(model, 0, left)
        model.class_vectors[0].assign(right)
        model.class_bias.assign(np.log(p.sum(axis=0))[class_order])
        inputs, classes, weights = one_batch(model, rows)
        _, gradients = model.loss_and_gradients(inputs, classes, weights, tf.constant([0, 0], tf.int64))
        assert len(gradients) == 3  # words, classes, and the classes' biases
        return max(float(np.abs(tf.convert_to_tensor(gradient).numpy()).max()) for gradient, _ in gradients)

    pmi = reference.pmi(COUNTS.astype(float))
    assert largest_slope(pmi) < 1e-6
    assert largest_slope(pmi - np.log(5)) < 1e-6  # the same to each context of a word, which the softmax leaves out
    assert largest_slope(pmi * 1.5) > 1e-2


@pytest.mark.slow
def test_windows_beside_fake_centres_teach_the_shifted_pmi() -> None:
    """A corpus, its windows and fakes of k = 2, and a training: scores are log(true / fake), near PMI - log k."""
    random = np.random.default_rng(0)
    texts = [[f"w{i}" for i in np.cumsum(random.random(400) < 0.3) // 2 % 4] for _ in range(50)]  # words stay a while
    read = Corpus.read(open_table(pa.table({"text": texts})), "text")
    table = pa.Table.from_batches(read.pairs(3, seed=4, reach="fixed", fake_centres=2, fake_alpha=1.0))
    counted = table.group_by(["word", "context", "label"]).aggregate([([], "count_all")])
    rows = encoded(
        counted, {"objective": {"type": "logistic", "target": "label", "weight": "count_all"}}, dim=len(read.words)
    )
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(optimizers.named("adam", keras.optimizers.schedules.CosineDecay(0.1, 300)))
    model.learn_from(rows)
    batch = one_batch(model, rows)
    for _ in range(300):
        model.train_step(batch)
    counts = np.zeros((2, len(read.words), len(read.words)))
    words, contexts = keys_of(rows, "word"), keys_of(rows, "context")
    for row in counted.to_pylist():
        counts[row["label"], words.index(row["word"]), contexts.index(row["context"])] = row["count_all"]
    scores = table_of(model, 0) @ table_of(model, 1).T
    expected = reference.pmi(counts[1]) - np.log(2)
    assert np.ptp(expected) > 2
    np.testing.assert_allclose(scores, np.log(counts[1] / counts[0]), atol=0.03)
    np.testing.assert_allclose(scores, expected, atol=0.15)
