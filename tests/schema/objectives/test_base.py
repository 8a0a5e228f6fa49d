"""The registry: what every objective has to answer, and new objectives, which need nothing but their class."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from keras import ops

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.metrics import PREDICTION_METRICS
from feat2vec.evaluation.prediction import predict
from feat2vec.evaluation.ranking import rank
from feat2vec.schema.objectives import (
    OBJECTIVES,
    Glove,
    Logistic,
    NoiseObjective,
    Noisy,
    ObjectiveSpec,
    Softmax,
    SupervisedObjective,
    objective,
    supervised,
)
from feat2vec.schema.objectives.base import Metric
from feat2vec.schema.objectives.formulas import Array, Tensor
from feat2vec.schema.objectives.kinds import unregister
from feat2vec.schema.reading import json_schema
from tests.schema.objectives.cases import (
    EXTREMES,
    SUPERVISED,
    Case,
    Floats,
    central,
    for_each_dtype,
    for_each_noise_objective,
    for_each_supervised_objective,
    labelled,
    slow_loss,
)

PACKAGE = Path(feat2vec.__file__).parent
BUILT_IN = ["nce", "negative_sampling", "contrastive", "logistic", "regression", "softmax", "glove"]


def made(name: str, **options: Any) -> ObjectiveSpec:
    """An objective of given options, with a target if it has one."""
    spec = OBJECTIVES[name]
    target = {"target": "y"} if issubclass(spec, SupervisedObjective) else {}
    return spec.model_validate(target | options)


# --- the built-in objectives ----------------------------------------------------------------------------------------


def test_every_objective_is_a_file_of_its_name() -> None:
    assert list(OBJECTIVES) == BUILT_IN  # in the order in which messages list them
    assert [spec.__module__.rpartition(".")[2] for spec in OBJECTIVES.values()] == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_an_objective_says_of_itself(name: str) -> None:
    options = made(name)
    assert options.type == name
    assert bool(options.metrics) == (options.target_column is not None) == (not options.needs_noise)
    classes = (2,) if options.has_classes else ()
    class_names = ["no", "yes"] if options.has_classes else None
    columns = options.prediction_columns(np.zeros((3, *classes), np.float32), class_names)
    assert {"score", "prediction"} & set(columns)
    assert all(len(column) == 3 for column in columns.values())


@pytest.mark.parametrize("name", ["regression", "glove"])
def test_links_are_inverse(name: str) -> None:
    options, targets = made(name), np.array([0.5, 1.0, 7.0])
    assert isinstance(options, SupervisedObjective)
    np.testing.assert_allclose(options.inverse_link(options.link(targets)), targets)


@pytest.mark.parametrize(
    ("name", "targets", "score"),
    [
        ("regression", [1.0, 3.0], 2.0),
        ("glove", [1.0, 100.0], np.log(10.0)),
        ("logistic", [1.0, 1.0, 1.0, 0.0], np.log(3.0)),
        ("logistic", [1.0, 1.0], np.log(999.0)),  # of a share of at most 0.999
        ("softmax", [0, 1], 0.0),
    ],
)
def test_the_bias_begins_where_a_constant_score_fits_best(name: str, targets: Any, score: float) -> None:
    assert made(name).starting_bias(np.array(targets)) == pytest.approx(score)


def test_implicit_negatives_need_noise() -> None:
    options = made("logistic", implicit="film")
    assert (options.needs_noise, options.implicit_group) == (True, "film")
    assert options.starting_bias(np.ones(3)) == 0
    assert options.problem_of_targets(np.ones(3), None) is None


def test_no_other_module_asks_which_objective_it_is() -> None:
    """Neither by `isinstance` or `match`, nor by comparing its type."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent == PACKAGE / "schema" / "objectives":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            asked = ""
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "getattr"):
                asked = ast.unparse(node.args[0])
            elif isinstance(node, ast.Match):
                asked = ast.unparse(node.subject)
            elif isinstance(node, ast.Compare):
                asked = ast.unparse(node.left) if ast.unparse(node.left).endswith(".type") else ""
            assert "objective" not in asked, f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"


# --- registration ---------------------------------------------------------------------------------------------------


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match=r"the objective 'nce' is registered already, by .*Nce.*Received: .*Other"):

        @objective("nce")
        class Other(NoiseObjective):
            type: Literal["nce"] = "nce"


def test_a_name_is_a_word() -> None:
    with pytest.raises(ValueError, match=r"letters, digits and underscores. Received: 'least squares'"):

        @objective("least squares")
        class LeastSquares(SupervisedObjective):
            type: Literal["least squares"] = "least squares"


def test_an_objective_derives_from_a_base() -> None:
    with pytest.raises(ValueError, match="int must derive from NoiseObjective or SupervisedObjective"):
        objective("number")(int)  # type: ignore[type-var]


def test_a_type_is_the_name() -> None:
    with pytest.raises(ValueError, match=r'Untyped needs the field `type: Literal\["hinge"\] = "hinge"`'):

        @objective("hinge")
        class Untyped(NoiseObjective):
            pass

    assert list(OBJECTIVES) == BUILT_IN


def test_a_loss_has_to_be_defined() -> None:
    with pytest.raises(ValueError, match="Lossless must define noise_loss or label_loss"):

        @objective("lossless")
        class Lossless(SupervisedObjective):
            type: Literal["lossless"] = "lossless"


def test_a_metric_has_to_be_known() -> None:
    assert list(get_args(Metric)) == list(PREDICTION_METRICS)
    with pytest.raises(ValueError, match=r"the metrics are log_loss, .*, accuracy. Received: deviance"):

        @objective("poisson")
        class Poisson(SupervisedObjective):
            metrics = ("rmse", "deviance")  # type: ignore[assignment]

            type: Literal["poisson"] = "poisson"

            def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
                return ops.exp(scores) - (label if above is None else ops.exp(above)) * scores


def test_the_other_loss_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="the objective nce learns from noise"):
        made("nce").label_loss(np.zeros(1), np.zeros(1))
    with pytest.raises(NotImplementedError, match="the objective glove learns from targets"):
        made("glove").noise_loss(Noisy(0.0, 0.0), Noisy(0.0, 0.0), None, 0.0)


# --- new objectives -------------------------------------------------------------------------------------------------


class Gamma(SupervisedObjective):
    """The deviance of a Gamma distribution whose mean is exp(s), but for a constant: s + y exp(-s)."""

    valid_targets = "above 0"
    allows_together = True

    type: Literal["gamma"] = "gamma"

    def is_valid_target(self, numbers: Array) -> Array:
        return numbers > 0

    def link(self, targets: Array) -> Array:
        return np.log(targets)

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        return scores + (label if above is None else ops.exp(above)) * ops.exp(-scores)

    def inverse_link(self, scores: Array) -> Array:
        return np.exp(scores)

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        return {**super().prediction_columns(scores, class_names), "log_mean": scores}


class Hinge(NoiseObjective):
    """The mean of max(0, margin + s(x-) - s(x+)) over a row's negatives."""

    compares_candidates = True

    type: Literal["hinge"] = "hinge"
    margin: float = 1.0

    def noise_loss(
        self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, above: Noisy | None = None
    ) -> Tensor:
        del log_q, hits, offset, above
        return ops.mean(ops.relu(self.margin + scores.negatives - ops.expand_dims(scores.positive, -1)), axis=-1)


@pytest.fixture(params=[Gamma, pytest.param(Hinge, marks=pytest.mark.slow)])
def new_objective(request: pytest.FixtureRequest) -> Iterator[type[ObjectiveSpec]]:
    """A class, registered."""
    name = request.param.model_fields["type"].default
    yield objective(name)(request.param)
    unregister(name)


def table() -> pa.Table:
    """Prices that a city and a size tell, and countries that a city tells."""
    rng = np.random.default_rng(0)
    city, size = rng.integers(0, 12, 600), rng.integers(0, 4, 600)
    of_city, of_size = rng.normal(size=12), rng.normal(size=4)
    return pa.table(
        {
            "city": [f"city {c}" for c in city],
            "size": [f"size {s}" for s in size],
            "country": [f"country {c % 3}" for c in city],
            "price": np.exp(of_city[city] + of_size[size] + 0.1 * rng.normal(size=600)),
        }
    )


def schema_with(spec: type[ObjectiveSpec], **options: Any) -> dict[str, Any]:
    """A schema of an objective; supervised ones learn the price."""
    data: dict[str, Any] = {"type": spec.model_fields["type"].default, **options}
    if issubclass(spec, SupervisedObjective):
        data["target"] = "price"
    return {
        "version": 1,
        "model": {"dim": 4, "bias": issubclass(spec, SupervisedObjective)},
        "groups": {name: {"column": name} for name in ("city", "size", "country")},
        "objective": data,
        "training": {
            "validation": 0,
            "epochs": 20,
            "batch_size": 64,
            "optimizer": {"type": "adam", "learning_rate": 0.02},
        },
    }


def test_a_new_objective_trains_predicts_and_is_evaluated(new_objective: type[ObjectiveSpec], tmp_path: Path) -> None:
    rows = table()
    train_rows, test_rows = rows.slice(0, 500), rows.slice(500)
    run = feat2vec.train(schema_with(new_objective), train_rows, tmp_path / "run", quiet=True)
    assert isinstance(run.schema.objective, new_objective)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < losses[0]
    predicted = run.predict(test_rows)
    loaded = feat2vec.load(tmp_path / "run")
    for name, column in loaded.predict(test_rows).items():
        np.testing.assert_allclose(column, predicted[name], rtol=1e-6)
    if new_objective is Gamma:
        log_prices = np.log(test_rows["price"].to_numpy())
        assert list(predicted) == ["prediction", "log_mean"]
        assert float(run.model.bias) == pytest.approx(np.log(train_rows["price"].to_numpy()).mean(), abs=0.5)
        facts = predict(run, test_rows)
        errors = np.log(predicted["prediction"]) - log_prices
        assert facts["rmse"] == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-4)
        assert facts["rmse"] < 0.5 * log_prices.std()
    else:
        assert list(predicted) == ["score"]
        assert rank(run, test_rows, "country")["mpr"] < 0.2  # 0.33 by chance


def test_a_new_objective_is_checked_as_the_others_are(new_objective: type[ObjectiveSpec], tmp_path: Path) -> None:
    name = new_objective.model_fields["type"].default
    assert f"{{'const': '{name}'" in str(json_schema()).replace('"', "'")
    text = f"version: 1\ngroups:\n  a: {{column: a}}\n  b: {{column: b}}\nobjective: {{type: {name[:-1]}}}\n"
    with pytest.raises(UserError, match=f"unknown type '{name[:-1]}'; did you mean '{name}'"):
        feat2vec.read_schema(text)
    if new_objective is Gamma:
        rows = table().set_column(3, "price", pa.array(np.zeros(600)))
        with pytest.raises(
            UserError, match=r"row 1: column 'price': received 0.0; the objective needs it to be above 0"
        ):
            feat2vec.train(schema_with(new_objective), rows, tmp_path / "run", quiet=True)
        together = {**schema_with(new_objective), "model": {"together": [["city", "size"]]}}
        assert feat2vec.read_schema(together).partners == [("city", "size"), ("country",)]
    else:
        together = {**schema_with(new_objective), "model": {"together": [["city", "size"]]}}
        with pytest.raises(UserError, match="by logistic, regression or glove; hinge is none"):
            feat2vec.read_schema(together)
        with pytest.raises(UserError, match="margins: unknown key; did you mean 'margin'"):
            feat2vec.read_schema(schema_with(new_objective, margins=2.0))


PLUGIN = """\
from typing import Literal

from feat2vec.objectives import SupervisedObjective, objective


@objective("absolute_error")
class AbsoluteError(SupervisedObjective):
    type: Literal["absolute_error"] = "absolute_error"
    scale: float = 1.0

    def label_loss(self, scores, label, above=None):
        return abs(scores - (label if above is None else above)) / self.scale
"""


def test_a_new_objective_is_one_file_beside_the_schema(tmp_path: Path) -> None:
    (tmp_path / "absolute_error_beside.py").write_text(PLUGIN, encoding="utf-8")
    path = tmp_path / "schema.yaml"
    path.write_text(
        "version: 1\nplugins: [absolute_error_beside]\ngroups:\n  a: {column: a}\n"
        "objective: {type: absolute_error, target: price, scale: 2.0}\n",
        encoding="utf-8",
    )
    try:
        schema = feat2vec.read_schema(path)
        assert (schema.target, schema.objective.type) == ("price", "absolute_error")
        assert float(supervised(schema.objective, 1.0, 4.0)) == 1.5
        assert feat2vec.read_schema(schema.resolved()) == schema
    finally:
        unregister("absolute_error")
        del sys.modules["absolute_error_beside"]


@for_each_noise_objective
@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@pytest.mark.parametrize("shared", [False, True], ids=["record", "batch"])
def test_noise_losses(objective: Any, dtype: str, target: bool, shared: bool) -> None:
    for k in (1, 3):
        case = Case(k=k, shared=shared)
        got = case.loss(objective, dtype, target)
        assert got.dtype == dtype
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        np.testing.assert_allclose(got, case.expected(objective, target), rtol=tolerance, atol=tolerance)


@for_each_noise_objective
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_gradients(objective: Any, target: bool) -> None:
    case = Case(seed=1)
    case.scores[0] = 0.0  # where |s| and relu have kinks

    def total(scores: Floats) -> float:
        return float(tf.reduce_sum(case.loss(objective, "float64", target, scores)))

    np.testing.assert_allclose(
        case.gradient(objective, "float64", target), central(total, case.scores), rtol=1e-7, atol=1e-9
    )


@for_each_noise_objective
@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_losses_at_extremes(objective: Any, dtype: str, target: bool) -> None:
    case = Case(rows=400, extreme=True)
    got = case.loss(objective, dtype, target).numpy()
    temperature = getattr(objective, "temperature", 1.0)
    # At 1e4 a float32 is 1e-3 apart from the next, and a probability made of such logits is as inexact.
    rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (1e-3 / temperature if target else 1e-6, 2e-3 / temperature)
    np.testing.assert_allclose(got, case.expected(objective, target), rtol=rtol, atol=atol)
    gradient = case.gradient(objective, dtype, target)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient) * temperature <= 1 + 1e-6).all()


@for_each_noise_objective
def test_a_certain_target_is_a_label(objective: Any) -> None:
    case = Case(seed=3)
    case.target[:, 0], case.target[:, 1:] = 2e3, -2e3
    plain, soft = (case.loss(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)
    plain, soft = (case.gradient(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)


@for_each_noise_objective
def test_a_target_is_reached_at_itself(objective: Any) -> None:
    """The gradient is 0 where a level's scores are those of the level above."""
    case = Case(seed=4)
    case.target = case.scores
    np.testing.assert_allclose(case.gradient(objective, "float64", True), 0, atol=1e-15)


@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@for_each_supervised_objective
def test_supervised_losses(objective: Any, target: bool, dtype: str) -> None:
    scores, above, label = labelled(objective, np.random.default_rng(0))
    got = supervised(objective, *(tf.constant(x, dtype) for x in (scores, label, *([above] if target else []))))
    assert got.dtype == dtype
    rows = zip(scores, label, above, strict=True)
    expected = [slow_loss(objective, s, y, t if target else None) for s, y, t in rows]
    np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@for_each_supervised_objective
def test_supervised_gradients(objective: Any, target: bool) -> None:
    at, above, label = labelled(objective, np.random.default_rng(1))
    at[0] = 0.0

    def loss(scores: Any) -> Any:
        return tf.reduce_sum(supervised(objective, scores, tf.constant(label), tf.constant(above) if target else None))

    scores = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = loss(scores)
    expected = central(lambda x: float(loss(tf.constant(x))), at)
    np.testing.assert_allclose(tape.gradient(total, scores), expected, rtol=1e-6, atol=1e-9)


@for_each_dtype
@for_each_supervised_objective
def test_supervised_losses_at_extremes(objective: Any, dtype: str) -> None:
    rng = np.random.default_rng(2)
    _, above, label = labelled(objective, rng, rows=100)
    scores = tf.constant(rng.choice(EXTREMES, above.shape), dtype)
    targets = rng.choice(EXTREMES, above.shape)
    for target in (None, targets):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            more = () if target is None else (tf.constant(target, dtype),)
            loss = supervised(objective, scores, tf.constant(label, dtype), *more)
        rows = zip(scores.numpy().astype(float), label, targets, strict=True)
        expected = [slow_loss(objective, s, y, None if target is None else t) for s, y, t in rows]
        rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (2e-5, 1e-6)
        np.testing.assert_allclose(loss, expected, rtol=rtol, atol=atol)
        assert np.isfinite(tape.gradient(loss, scores).numpy()).all()


def test_a_certain_target_is_a_label_as_well() -> None:
    rng = np.random.default_rng(3)
    for supervised_objective in SUPERVISED:
        scores, _, label = labelled(supervised_objective, rng)
        match supervised_objective:
            case Softmax():
                above = 2e3 * np.eye(4)[label.astype(int)]
            case Logistic():
                above = 4e3 * label - 2e3
            case Glove():
                above = np.log(label)
            case _:
                above = label
        got = supervised(supervised_objective, *(tf.constant(x) for x in (scores, label, above)))
        expected = supervised(supervised_objective, *(tf.constant(x) for x in (scores, label)))
        np.testing.assert_allclose(got, expected, rtol=1e-13)
