"""Which value a text stands for, and what is said of a text that stands for none."""

from __future__ import annotations

import pytest

import feat2vec
from feat2vec.errors import UnknownKeyError, UserError
from tests.space.tables import table


@pytest.fixture(scope="module")
def run(vectors_run: feat2vec.Run) -> feat2vec.Run:
    return vectors_run


def test_values_that_are_no_keys_have_spellings(run: feat2vec.Run) -> None:
    data = table()
    title = run.vectors("title")
    assert set(title.index_to_key) == {text.casefold() for text in data["title"].to_pylist()}
    assert title.get_index("THE 0, of Tōkyō: 1!") == title.key_to_index["the 0 of tōkyō 1"]
    counts = [text.casefold() for text in data["title"].to_pylist()].count("the 0 of tōkyō 1")
    assert title.get_vecattr("The 0 of Tōkyō 1", "count") == counts
    score = run.vectors("score")
    assert set(score.index_to_key) == {f"{x:g}" for x in data["score"].to_pylist()}
    assert score.get_index("0.50") == score.get_index(0.5) == score.key_to_index["0.5"]
    both = run.vectors("both")
    votes = data["votes"].to_pylist()
    pairs = {(s, v) for s, v in zip(data["score"].to_pylist(), votes, strict=True)}
    assert set(both.index_to_key) == {f"score={s:g}, votes={'missing' if v is None else f'{v:g}'}" for s, v in pairs}
    image = run.vectors("image")
    assert len(set(image.index_to_key)) == len(image)
    entry = run.fitted.values["image"].entries[0]
    assert image.index_to_key[0] == f"[{', '.join(f'{x:g}' for x in entry[:4])}, ...] #1"
    assert image.get_index(str(entry.tolist())) == 0
    assert run.vectors("year").get_index(1995) == run.vectors("year").get_index("1995")
    for v in (title, score, both, image):
        for i in (0, len(v) - 1):
            assert v.get_index(v.index_to_key[i]) == i
        assert v._names.at([1, 0]) == [v.index_to_key[1], v.index_to_key[0]]
    for v, key in ((title, "words"), (score, "fast"), (score, "0.51"), (both, "0.5"), (image, "[1, 2]")):
        with pytest.raises(KeyError, match="has no"):
            v.get_index(key)


def test_an_unknown_key_names_the_nearest(run: feat2vec.Run) -> None:
    v = run.vectors("who")
    with pytest.raises(KeyError, match="the group 'who' has no 'nolan'; did you mean 'Christopher Nolan'") as caught:
        v["nolan"]
    assert isinstance(caught.value, UserError)
    assert str(caught.value).startswith("the group")
    with pytest.raises(UnknownKeyError, match="has no 'Nolan, Christoper'; did you mean 'Christopher Nolan'"):
        v["Nolan, Christoper"]
    with pytest.raises(UnknownKeyError, match="has no 'Agnes Varda'; did you mean 'Agnès Varda'"):
        v.most_similar("Agnes Varda")
    with pytest.raises(UnknownKeyError, match=r"has no '\\udcff'; it has 9, such as '"):
        v["\udcff"]
    with pytest.raises(UserError, match="there is no group 'tag'; did you mean 'tags'"):
        v.most_similar("李安", to="tag")
    with pytest.raises(UserError, match="similarity is one of cosine, dot, score; received 'cosin'"):
        v.most_similar("李安", similarity="cosin")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="index is one of exact, hnsw, ivf; received 'flat'"):
        v.most_similar("李安", index="flat")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="needs a key or a vector"):
        v.most_similar()
    with pytest.raises(UserError, match=r"vectors of \d dimensions; received \(2,\)"):
        v.similar_by_vector([1, 2])
