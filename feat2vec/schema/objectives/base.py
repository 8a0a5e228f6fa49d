"""`ObjectiveSpec`: every question that other modules ask about an objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from feat2vec.schema.objectives.formulas import Array, Noisy, Tensor
from feat2vec.schema.validation import Findings, Problem, Spec

if TYPE_CHECKING:
    from feat2vec.schema.options import Schema


Metric = Literal["log_loss", "auc", "rmse", "mae", "accuracy"]  # evaluation/metrics.py has their functions


class ObjectiveSpec(Spec):
    """The options of an objective, and what the rest of the package has to know about it.

    Derive an objective from `NoiseObjective`, and define `noise_loss`, or from `SupervisedObjective`, and define
    `label_loss`. Override what else differs from the defaults.

    Example:
        >>> options = feat2vec.read_schema(schema).objective
        >>> isinstance(options, feat2vec.objectives.ObjectiveSpec), options.needs_noise, options.target_column
        (True, True, None)

    """

    if TYPE_CHECKING:
        type: str  # a `Literal` that each objective declares, after inherited fields: the order in resolved schemas

    # Targets
    valid_targets: ClassVar[str] = "a number"  # `is_valid_target` in words, for messages
    has_classes: ClassVar[bool] = False  # targets are classes: the model has a vector for each, scores [rows, classes]
    is_binary: ClassVar[bool] = False  # targets are 0 or 1
    has_counts: ClassVar[bool] = False  # a target says how often its row occurs
    folds_in: ClassVar[bool] = False  # a new value's vector can be solved from the labels of its rows

    standardizes: ClassVar[bool] = False  # targets are learnt in units of their deviation from their mean
    has_normal_errors: ClassVar[bool] = False  # so that the posterior of weights may be normal (`model.posterior`)

    # Scores
    has_offsets: ClassVar[bool] = False  # the loss adds a constant to scores: the mean log k Q2 of the target group
    compares_candidates: ClassVar[bool] = False  # the loss only has differences of scores of one row's candidates
    allows_together: ClassVar[bool] = False  # groups may be added up before they meet in pairs (`model.together`)

    # Validation: why a loss of rows that are held out says little, for a message; None if it says how good a model is
    why_none_is_held_out: ClassVar[str | None] = None

    # Evaluation
    metrics: ClassVar[tuple[Metric, ...]] = ()  # what the task `predict` measures

    # --- columns and noise ---

    @property
    def target_column(self) -> str | None:
        """The column that is learnt, if there is one."""
        return None

    @property
    def weight_column(self) -> str | None:
        """The column with a weight for each row, if there is one."""
        return None

    @property
    def class_weighting(self) -> Mapping[str, float] | Literal["balanced"] | None:
        """What the loss of a row is multiplied by: numbers by class name, or the same total for every class."""
        return None

    @property
    def implicit_group(self) -> str | None:
        """The group that is drawn anew for negatives of labelled rows; rows without a target count as positive."""
        return None

    @property
    def is_calibrated(self) -> bool:
        """Whether held-out rows say how sure answers may be: these are numbers, or probabilities of labels."""
        is_weighted = self.class_weighting is not None or self.implicit_group is not None
        has_answers = self.standardizes or self.has_classes or self.is_binary
        return self.target_column is not None and has_answers and not is_weighted

    @property
    def needs_noise(self) -> bool:
        """Whether a training step draws negatives, which take memory."""
        return self.implicit_group is not None

    @property
    def unit_candidates(self) -> bool:
        """Whether the vectors of a row's candidates are scaled to length 1."""
        return False

    # --- scores as probabilities ---

    @property
    def completes_rows(self) -> bool:
        """Whether a score tells how probable a value is beside the rest of its row."""
        return False

    @property
    def score_scale(self) -> float:
        """What scores are divided by in the loss."""
        return 1.0

    @property
    def default_patience(self) -> int:
        """After how many epochs without a lower validation loss training stops by default; 0 is never."""
        return 5

    def missing_popularity(self, alpha_values: float) -> float:
        """Return which power of a value's count its score lacks to be the logarithm of its probability in the row.

        Args:
            alpha_values: The exponent of counts in the noise.

        Returns:
            The power.

        """
        del alpha_values
        return 0.0

    # --- schema ---

    def conflicts(self, schema: Schema, findings: Findings, groups: Sequence[str]) -> Iterator[Problem]:
        """Yield what is wrong with the objective in this schema, although each key is right by itself.

        Args:
            schema: The schema, in which keys that are wrong have their defaults.
            findings: Which keys are sound, and can be compared.
            groups: The names of the schema's groups, also of those that are wrong.

        Yields:
            The path of a key and a message.

        """
        del schema, findings, groups
        yield from ()

    # --- targets ---

    def is_valid_target(self, numbers: Array) -> Array:
        """Return which numbers are targets, bool [rows].

        Args:
            numbers: The numbers of a target column, [rows].

        Returns:
            Whether each is a target, bool [rows].

        """
        valid: Array = numbers == numbers  # all but NaN
        return valid

    def problem_of_targets(self, targets: Array | None, class_names: Sequence[str] | None) -> str | None:
        """Return why nothing can be learnt from the targets of all training rows, None if something can be.

        Args:
            targets: The targets of all training rows, [rows].
            class_names: The names of the classes, if targets are classes.

        Returns:
            A message, or None.

        """
        del targets, class_names
        return None

    def link(self, targets: Array) -> Array:
        """Return targets on the scale of scores, on which metrics compare them; labels and classes stay as they are.

        Args:
            targets: Targets, [rows].

        Returns:
            What the scores should be, [rows].

        """
        return targets

    def starting_bias(self, targets: Array) -> float:
        """Return the score that fits targets best if it is the same in every row, 0 if scores have no such meaning.

        Args:
            targets: The targets of the training rows, [rows].

        Returns:
            The score.

        """
        del targets
        return 0.0

    # --- losses ---

    def noise_loss(
        self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, above: Noisy | None = None
    ) -> Tensor:
        """Return the loss of rows against their negatives, [rows].

        Args:
            scores: The scores of rows and of their negatives.
            log_q: log Q2 of the values of both.
            hits: Which negatives are the row's own value, bool [rows, k].
            offset: The target group's constant, or [rows] of them, if the objective `has_offsets`.
            above: Scores of the level above, if the loss is taken against their probabilities.

        Returns:
            The loss of each row, [rows].

        """
        raise NotImplementedError(f"the objective {self.type} learns from targets")

    def odds_of_truth(self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor) -> Tensor | None:
        """Return the log odds that a row's scores give to what is true in each decision of its `noise_loss`.

        The loss of a row is then the sum over its decisions of log(1 + exp(-odds)).

        Args:
            scores: The scores of rows and of their negatives.
            log_q: log Q2 of the values of both.
            hits: Which negatives are the row's own value, bool [rows, k].
            offset: The target group's constant, if the objective `has_offsets`.

        Returns:
            The odds, [rows, decisions]; None if the loss is not made of the probabilities of decisions.

        """
        del scores, log_q, hits, offset
        return None

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        """Return the loss of rows against their targets, [rows].

        Args:
            scores: The scores, [rows] or [rows, classes].
            label: The targets, [rows].
            above: Scores of the level above, if the loss is taken against those.

        Returns:
            The loss of each row, [rows].

        """
        raise NotImplementedError(f"the objective {self.type} learns from noise")

    def touching_parabolas(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Return the parabolas that touch the losses of rows at their scores and are nowhere below them.

        Least squares of them, again and again, find the least loss. An objective that has them says `folds_in`.

        Args:
            scores: [rows].
            targets: In the unit of scores, [rows]; counts if the objective `has_counts`.

        Returns:
            Their slopes and curvatures at the scores, [rows] each.

        """
        raise NotImplementedError(f"the objective {self.type} folds no value in")

    def learnt_labels(self, labels: Tensor) -> Tensor:
        """Return what training takes for labels; losses are measured with the labels themselves.

        Args:
            labels: The targets, as `label_loss` takes them.

        Returns:
            The same, or others of that shape.

        """
        return labels

    # --- predictions ---

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        """Return what is predicted from scores.

        Args:
            scores: The scores, [rows] or [rows, classes].
            class_names: The names of the classes, as an Arrow array, if targets are classes.

        Returns:
            For each column of predictions its name and values, [rows].

        """
        del class_names
        return {"score": scores}


def self_supervised(
    objective: ObjectiveSpec, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, target: Noisy | None = None
) -> Tensor:
    """Return the loss of rows against their negatives, by an objective without a target.

    Args:
        objective: The objective's options, such as `Nce()`.
        scores: The scores of rows and of their negatives.
        log_q: log Q2 of the values of both.
        hits: Which negatives are the row's own value, bool [rows, k].
        offset: A constant that nce adds to the scores.
        target: Scores of the level above. The loss is taken against their probabilities instead of labels.

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from feat2vec.schema.objectives import NegativeSampling
        >>> scores = Noisy(np.zeros(1, "float32"), np.zeros((1, 1), "float32"))
        >>> loss = self_supervised(NegativeSampling(), scores, log_q=scores, hits=None, offset=0.0)
        >>> round(float(loss[0]), 4)  # 2 log 2
        1.3863

    """
    return objective.noise_loss(scores, log_q, hits, offset, target)


def supervised(objective: ObjectiveSpec, scores: Tensor, label: Tensor, target: Tensor | None = None) -> Tensor:
    """Return the loss of rows by an objective with a target.

    Args:
        objective: The objective's options, such as `Regression(target="price")`.
        scores: The scores, [rows] or [rows, classes].
        label: The targets, [rows].
        target: Scores of the level above. The loss is taken against those instead of labels.

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from feat2vec.schema.objectives import Regression
        >>> float(supervised(Regression(target="price"), np.zeros(1), np.array([3.0]))[0])
        9.0

    """
    return objective.label_loss(scores, label, target)
