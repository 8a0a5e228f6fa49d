"""Plain data to frozen objects: every problem at once, in our words, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from feat2vec.errors import UserError, suggest
from feat2vec.schema.document import Data, Document, KeyPath
from feat2vec.schema.messages import Locator, Mistake, mistake_of


class Spec(BaseModel):
    """The base of every part of a schema or recipe: frozen, and a key that it does not know is a problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Problem = tuple[KeyPath, str]  # the path of a key, and what is wrong with it
Model = TypeVar("Model", bound=Spec)


class Findings:
    """What a check that looks at several keys may rely on: the data as given, and where they are wrong."""

    def __init__(self, data: Mapping[str, Data], mistakes: Sequence[Mistake]) -> None:
        self.data = data
        self._wrong = {mistake.place for mistake in mistakes}
        self._above_wrong = {place[:end] for place in self._wrong for end in range(len(place))}
        self._beside_unknown = {mistake.place[:-1] for mistake in mistakes if mistake.kind == "extra_forbidden"}

    def sound(self, *path: str | int, inside: bool = True) -> bool:
        """Whether a path, or its default, is what the user meant.

        It is not if there is a mistake at the path, above or (if `inside`) below it. A key that is not given may also
        be meant by an unknown key beside it.
        """
        if any(path[:end] in self._wrong for end in range(len(path) + 1)):
            return False
        if inside and path in self._above_wrong:
            return False
        return path[:-1] not in self._beside_unknown or self._given(path)

    def _given(self, path: KeyPath) -> bool:
        node: object = self.data
        for key in path:
            if not isinstance(node, dict) or key not in node:
                return False
            node = node[key]
        return True


def validate(
    document: Document,
    model: type[Model],
    conflicts: Callable[[Model, Findings], Iterable[Problem]],
    stand_ins: Mapping[str, Data] | None = None,
    known: Sequence[Problem] = (),
) -> Model:
    """Check a document and make an object of it.

    Args:
        document: The parsed document.
        model: The class of the object.
        conflicts: Yields what is wrong although each key is right by itself.
        stand_ins: Values for required keys of the model, so that `conflicts` can check the others if these are wrong.
        known: Problems that the caller has found already.

    Returns:
        The object.

    Raises:
        UserError: Something is wrong. It holds every problem, in the order of their lines.

    """
    mistakes = [Mistake(flaw.path, flaw.path, flaw.message, "flaw", flaw.line) for flaw in document.flaws]
    mistakes += [Mistake(path, path, message, "known") for path, message in known]
    value_mistakes, checked = _try_model(document, model)
    mistakes += _silence_consequences(value_mistakes, mistakes)
    if checked is None:
        checked = _check_sound_part(document, model, value_mistakes, stand_ins or {})
    if checked is not None:
        problems = conflicts(checked, Findings(document.data, mistakes))
        mistakes += [Mistake(path, path, message) for path, message in problems]
    reported = [mistake for mistake in mistakes if mistake.message]
    if reported or checked is None:
        reported.sort(key=lambda mistake: mistake.line or document.line(mistake.at))
        messages = [document.problem(mistake.at, mistake.message, mistake.line) for mistake in reported]
        raise UserError(*dict.fromkeys(messages))
    return checked


def _try_model(document: Document, model: type[Model]) -> tuple[list[Mistake], Model | None]:
    """The object that the data are, or the mistakes for which there is none."""
    try:
        return [], model.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    locations_above = {detail["loc"][:end] for detail in details for end in range(len(detail["loc"]))}
    locator = Locator(model)
    mistakes = []
    for detail in details:
        # Pydantic calls a list too short as well if one of its items is wrong.
        if detail["type"] != "too_short" or detail["loc"] not in locations_above:
            mistakes.append(mistake_of(detail, document, locator))
    return mistakes, None


def _silence_consequences(mistakes: Sequence[Mistake], earlier: Sequence[Mistake]) -> list[Mistake]:
    """The mistakes, without messages for those that only follow from another one."""
    flaw_paths = {mistake.at for mistake in earlier if mistake.kind == "flaw"}
    plugin_failed = any(mistake.kind == "known" for mistake in earlier)
    unknown_keys: dict[KeyPath, list[str]] = {}  # by the path of the mapping that holds them
    for mistake in mistakes:
        if mistake.kind == "extra_forbidden":
            unknown_keys.setdefault(mistake.at[:-1], []).append(str(mistake.at[-1]))
    silenced = []
    for mistake in mistakes:
        is_misspelt = mistake.kind == "missing" and suggest(str(mistake.place[-1]), unknown_keys.get(mistake.at, ()))
        is_of_plugin = mistake.kind == "union_tag_invalid" and plugin_failed
        follows = is_misspelt or is_of_plugin or mistake.at in flaw_paths
        silenced.append(replace(mistake, message="") if follows else mistake)
    return silenced


def _check_sound_part(
    document: Document, model: type[Model], mistakes: Sequence[Mistake], stand_ins: Mapping[str, Data]
) -> Model | None:
    """The object that is left without the keys that are wrong; None if nothing can be left out to make one."""
    while True:
        data = {**stand_ins, **_without(document.data, [mistake.at for mistake in mistakes])}
        if data == document.data:
            return None
        document = replace(document, data=data)
        mistakes, checked = _try_model(document, model)
        if checked is not None:
            return checked


def _without(data: Any, paths: Sequence[KeyPath]) -> Any:
    """A copy of nested data without the entries at the paths."""
    removed = {path[0] for path in paths if len(path) == 1}
    paths_below: dict[str | int, list[KeyPath]] = {}
    for path in paths:
        if len(path) > 1:
            paths_below.setdefault(path[0], []).append(path[1:])
    if isinstance(data, dict):
        return {key: _without(value, paths_below.get(key, [])) for key, value in data.items() if key not in removed}
    if isinstance(data, list):
        return [_without(item, paths_below.get(i, [])) for i, item in enumerate(data) if i not in removed]
    return data
