"""Schemas that are valid by construction, for property tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st

HOSTILE = [
    "no", "010", "1e3", "2020-01-01", "12:30", "~", " x", "x ", "a: b", "#x", "null", "y", "<<", "=", "é", "🎬", "a\nb",
    "\x85", "-", "*x", "&x", "!x", "%", "@", "0x1f", "1_000", ".inf", "true", "lookup", "columns", "'", '"',
]  # fmt: skip


NAMES = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


COUNTS = st.integers(1, 2**31 - 1)


DIMS = st.integers(1, 65_536)


SHARES = st.floats(0, 1, exclude_max=True)


POSITIVE = st.floats(0, exclude_min=True, allow_infinity=False)


NOT_NEGATIVE = st.floats(0, allow_infinity=False)


VOCABULARY: dict[str, st.SearchStrategy[Any]] = {"min_count": COUNTS, "max_size": st.none() | COUNTS}


def mapping(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


def typed(name: str, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return mapping({"type": st.just(name)}, **optional)


COMBINER = st.sampled_from(["sum", "mean", "sqrtn"])


PARTS = st.lists(st.sampled_from(["year", "quarter", "month", "day", "weekday", "hour"]), max_size=6, unique=True)


ONE_COLUMN = st.one_of(
    st.just("lookup"),
    st.just({}),
    typed(
        "lookup",
        multi=st.booleans(),
        split=NAMES,
        max_items=COUNTS,
        max_share=st.floats(0, 1, exclude_min=True),
        item_dropout=SHARES,
        gain=POSITIVE,
        combiner=COMBINER,
        **VOCABULARY,
    ),
    mapping({"type": st.just("lookup"), "multi": st.just(True)}, weights=NAMES, **VOCABULARY),
    typed("lookup", bins=st.integers(2, 10_000)),
    typed("lookup", parts=PARTS),
    mapping(
        {"type": st.just("lookup"), "parts": st.just(["year"])}, dates=st.sampled_from(["seconds", "%d.%m.%Y %H:%M"])
    ),
    mapping({"type": st.just("numeric")}, written=st.sampled_from(["1,5", "$1,000.5", "1.5 min", "1.5%"])),
    mapping({"type": st.just("numeric")}, dates=st.sampled_from(["seconds", "%d.%m.%Y"])),
    st.just("text_cnn"),
    typed(
        "text_cnn",
        max_tokens=st.integers(9, 2**31 - 1),
        widths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
        filters=DIMS,
        token_dim=DIMS,
        dropout=SHARES,
        **VOCABULARY,
    ),
    typed(
        "text_attention",
        max_tokens=st.integers(1, 4096),
        token_dim=st.sampled_from([4, 12, 64]),
        heads=st.sampled_from([1, 2, 4]),
        blocks=st.integers(1, 64),
        units=DIMS,
        positions=st.sampled_from(["sinusoidal", "learned"]),
        dropout=SHARES,
        **VOCABULARY,
    ),
    st.sampled_from(["vector", "numeric", "text_attention"]),
    mapping({"type": st.sampled_from(["vector", "numeric"])}, start=st.sampled_from(["random", "pca"])),
)


NUMERIC = typed(
    "numeric",
    scale=st.sampled_from(["standard", "minmax", "log1p", "quantile", "none"]),
    nan=st.sampled_from(["error", "missing"]),
    hidden=st.lists(DIMS, max_size=3),
)


GROUPS = st.one_of(
    mapping({"column": NAMES}, extractor=ONE_COLUMN),
    mapping({"columns": NAMES | st.lists(NAMES, min_size=1, max_size=1)}, extractor=ONE_COLUMN),
    mapping({"columns": st.lists(NAMES, min_size=1, max_size=4, unique=True), "extractor": NUMERIC}),
)


MODELS = mapping({}, dim=DIMS, bias=st.booleans()) | mapping(
    {"ranks": st.lists(DIMS, min_size=1, max_size=4, unique=True).map(sorted)},
    bias=st.booleans(),
    dependents=st.sampled_from(["joint", "strict"]),
    level_sharing=st.sampled_from(["separate", "truncate"]),
)


TARGET: dict[str, st.SearchStrategy[Any]] = {"target": NAMES}


OBJECTIVES = st.one_of(
    st.sampled_from(["nce", "negative_sampling", "contrastive"]),
    typed("contrastive", correction=st.booleans(), unit=st.booleans(), temperature=POSITIVE),
    *(mapping({"type": st.just(kind), **TARGET}, weight=NAMES) for kind in ("logistic", "regression", "softmax")),
    mapping({"type": st.just("glove"), **TARGET}, weight=NAMES, n_max=POSITIVE, alpha=NOT_NEGATIVE),
)


RATE = {"learning_rate": POSITIVE, "decay": st.sampled_from(["linear", "none"])}
OPTIMIZERS = st.one_of(
    st.sampled_from(["adam", "adagrad", "ftrl", "sgd"]),
    mapping({}, type=st.sampled_from(["adam", "adagrad"]), **RATE),
    mapping({"type": st.just("sgd"), "momentum": st.floats(0.1, 0.9)}, nesterov=st.booleans(), **RATE),
    mapping(
        {"type": st.just("ftrl"), "l1": POSITIVE, "penalize": st.just("tables")},
        beta=POSITIVE,
        l2=NOT_NEGATIVE,
        **RATE,
    ),
)


TRAINING = mapping(
    {},
    epochs=COUNTS,
    batch_size=COUNTS,
    optimizer=OPTIMIZERS,
    l2=NOT_NEGATIVE,
    group_dropout=SHARES,
    interaction_dropout=SHARES,
    patience=st.integers(0, 2**31 - 1),
    checkpoint_minutes=POSITIVE,
    seed=st.integers(0, 2**31 - 1),
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A schema's data, valid by construction."""
    groups = draw(st.dictionaries(NAMES, GROUPS, min_size=2, max_size=5))
    owner = draw(st.none() | st.sampled_from(list(groups)))
    if owner is not None and f"{owner} too" not in groups:
        groups[f"{owner} too"] = {"columns": next(read_columns({owner: groups[owner]})), "share": owner}
    joint = draw(st.lists(st.sampled_from(list(groups)), unique=True, max_size=4))
    noise = mapping(
        {},
        alpha_groups=st.floats(0, 10),
        alpha_values=st.floats(0, 10),
        negatives=st.integers(1, 1_000_000),
        sharing=st.sampled_from(["record", "batch"]),
        joint=st.just([joint] if len(joint) > 1 else []),
        targets=st.just(joint) | st.fixed_dictionaries(dict.fromkeys(joint, POSITIVE)),
    )
    data = draw(
        mapping(
            {"version": st.just(1), "groups": st.just(groups)},
            name=NAMES,
            id=NAMES,
            model=MODELS,
            noise=noise,
            objective=OBJECTIVES,
            training=TRAINING,
        )
    )
    objective = data.get("objective")
    columns = [column for group in read_columns(groups) for column in group]
    extractors = [group.get("extractor") for group in groups.values()]
    columns += [str(extractor.get("weights")) for extractor in extractors if isinstance(extractor, dict)]
    if isinstance(objective, dict) and "target" in objective:
        assume(objective["target"] not in [*columns, objective.get("weight"), data.get("id")])
    return dict(data)


def read_columns(groups: dict[str, Any]) -> Iterator[list[str]]:
    for group in groups.values():
        columns = group.get("columns", group.get("column"))
        yield [columns] if isinstance(columns, str) else columns


QUICK = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
