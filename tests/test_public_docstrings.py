"""What is public says what it takes, returns and raises, with an example that pytest runs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import pytest

import feat2vec

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):\n((?:    .*\n|\n)*)", re.M)
ENTRY = re.compile(r"^    \*{0,2}(\w+(?:, \w+)*): ", re.M)
RETURNED_BY_METHODS = ("space.vectors.Vectors", "space.vectors.Hit")  # and named in no public module
NOT_RAISED_TO_CALLERS = ("NotImplementedError", "AssertionError", "AttributeError")


def public_objects() -> dict[str, Any]:
    """The classes and functions that are public, by the name under which they are imported."""
    names = [name for name in feat2vec.__all__ if name != "__version__"]
    for module_name in feat2vec.PUBLIC_MODULES:
        module = importlib.import_module(f"feat2vec.{module_name}")
        names += [f"{module_name}.{name}" for name in module.__all__]
    objects: dict[str, Any] = {}
    for name in [*names, *RETURNED_BY_METHODS]:
        module_name, _, attribute = f"feat2vec.{name}".rpartition(".")
        value = getattr(importlib.import_module(module_name), attribute)
        is_documented_kind = inspect.isclass(value) or inspect.isfunction(value)
        if is_documented_kind and not any(value is known for known in objects.values()):
            objects[name] = value
    return objects


def public_methods(class_: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that a class, or a base class of feat2vec, defines, without those that its base documents."""
    members = {name: member for base in reversed(class_.__mro__) for name, member in vars(base).items()}
    for name, member in members.items():
        if name.startswith("_") or isinstance(member, (property, cached_property)):
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        function = inspect.unwrap(function) if callable(function) else function
        if not inspect.isfunction(function) or not function.__module__.startswith("feat2vec."):
            continue
        if not is_documented_by_a_base(class_, name, function):
            yield name, function


def is_documented_by_a_base(class_: type, name: str, function: Callable[..., Any]) -> bool:
    """Whether a method overrides one with the same parameters, of another library or with a docstring."""
    for base in class_.__mro__[1:]:
        overridden = inspect.unwrap(vars(base)[name]) if name in vars(base) else None
        if not inspect.isfunction(overridden) or overridden is function:
            continue
        is_documented = overridden.__doc__ or not overridden.__module__.startswith("feat2vec.")
        if is_documented and parameters(overridden) == parameters(function):
            return True
    return False


def parameters(function: Callable[..., Any]) -> list[str]:
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls")]


def fields(class_: type) -> list[str]:
    """What a class is made of: the fields of a record, or the arguments of its constructor."""
    if hasattr(class_, "model_fields"):
        return list(class_.model_fields)
    if dataclasses.is_dataclass(class_):
        return [field.name for field in dataclasses.fields(class_)]
    if hasattr(class_, "_fields"):
        return list(class_._fields)
    constructor = class_.__init__  # type: ignore[misc]
    if not inspect.isfunction(constructor) or not constructor.__module__.startswith("feat2vec."):
        return []
    return [name for name in parameters(constructor) if name not in ("args", "kwargs")]  # those of a base class


def described_fields(class_: type) -> set[str]:
    """The fields that a class or one of its base classes describes."""
    docstrings = [vars(base).get("__doc__") or "" for base in class_.__mro__ if base.__module__.startswith("feat2vec.")]
    return {name for docstring in docstrings for name in documented(docstring)[1]}


def documented(docstring: str) -> tuple[set[str], set[str]]:
    """The sections of a docstring, and the arguments and attributes that it describes."""
    sections = dict(SECTION.findall(f"{inspect.cleandoc(docstring)}\n"))
    entries = ENTRY.findall(sections.get("Args", "") + sections.get("Attributes", ""))
    return set(sections), {name for entry in entries for name in entry.split(", ")}


def raised(function: Callable[..., Any]) -> set[str]:
    """The exceptions that the code of a function itself raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = {ast.unparse(call.func if isinstance(call, ast.Call) else call) for call in calls}
    return {name for name in names if name[0].isupper() and name not in NOT_RAISED_TO_CALLERS}


def missing_of_function(function: Callable[..., Any], class_docstring: str = "") -> list[str]:
    docstring = function.__doc__ or ""
    sections, described = documented(docstring)
    missing = [f"Args: {name}" for name in parameters(function) if name not in described]
    returned = function.__annotations__.get("return", "None")
    if returned not in ("None", None, "NoReturn") and not sections & {"Returns", "Yields"}:
        missing.append("Returns")
    if "Raises" not in sections:
        missing += [f"Raises: {name}" for name in sorted(raised(function))]
    if ">>>" not in docstring + class_docstring:
        missing.append("an example")
    return missing


PUBLIC = public_objects()
FUNCTIONS = [name for name, value in PUBLIC.items() if inspect.isfunction(value)]
CLASSES = [name for name, value in PUBLIC.items() if inspect.isclass(value)]


def test_the_public_names_are_found() -> None:
    assert {"train", "open_table", "objectives.glove", "diagnose.stability"} <= set(FUNCTIONS)
    assert {"Run", "Encoder", "Feat2Vec", "Schema", "Table", "space.vectors.Vectors", "specs.Lookup"} <= set(CLASSES)
    assert {"fit", "get_index", "most_similar", "only"} <= {
        name for class_name in CLASSES for name, _ in public_methods(PUBLIC[class_name])
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_a_whole_docstring(name: str) -> None:
    assert missing_of_function(PUBLIC[name]) == []


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_and_its_methods_have_whole_docstrings(name: str) -> None:
    class_ = PUBLIC[name]
    docstring = vars(class_).get("__doc__") or ""
    described = described_fields(class_)
    missing = [f"{name} has no Args: {field}" for field in fields(class_) if field not in described]
    if ">>>" not in docstring:
        missing.append(f"{name} has no example")
    for method_name, method in public_methods(class_):
        missing += [f"{name}.{method_name} has no {part}" for part in missing_of_function(method, docstring)]
    assert missing == []
