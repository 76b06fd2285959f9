"""Errors travel from a Spark task to the driver: every one of them must survive pickling."""

from __future__ import annotations

import copy
import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import heliograph
from heliograph import errors
from heliograph.errors import HeliographError

for module in pkgutil.walk_packages(heliograph.__path__, "heliograph."):
    if not module.name.endswith("__main__"):
        import_module(module.name)


def subclasses(cls: type[HeliographError]) -> Iterator[type[HeliographError]]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


ALL = sorted(set(subclasses(HeliographError)), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_pickles(cls: type[HeliographError]) -> None:
    error = cls("what", where="where", why="why", remedy="remedy", position=7, names=["ü", None])
    for copied in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(copied) is cls
        assert (copied.what, copied.where, copied.why, copied.remedy) == ("what", "where", "why", "remedy")
        assert copied.details == {"position": 7, "names": ["ü", None]}
        assert str(copied) == str(error)
        assert (copied.code, copied.retriable) == (error.code, error.retriable)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_a_bare_error_says_the_same_and_holds_nothing_of_where_it_was_raised(cls: type[HeliographError]) -> None:
    def fail() -> None:
        try:
            raise ValueError
        except ValueError as cause:
            raise cls("what", where="where", why="why", remedy="remedy", position=7) from cause

    with pytest.raises(cls) as caught:
        fail()
    bare = caught.value.bare()
    assert (type(bare), str(bare), bare.details) == (cls, str(caught.value), caught.value.details)
    assert (bare.__traceback__, bare.__cause__, bare.__context__) == (None, None, None)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_has_a_code_of_its_own(cls: type[HeliographError]) -> None:
    assert "code" in vars(cls)
    assert cls.code == cls.code.upper()
    assert [other for other in ALL if other.code == cls.code] == [cls]


def test_the_text_is_made_of_what_there_is() -> None:
    full = errors.DataLost("offsets 3 to 5 expired", where="a->b t-0", why="retention", remedy="raise retention.ms")
    assert str(full) == "DATA_LOST: a->b t-0: offsets 3 to 5 expired; retention; raise retention.ms"
    assert str(errors.Unreachable("no connection")) == "UNREACHABLE: no connection"
