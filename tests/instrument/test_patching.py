"""One patch: placed on any kind of attribute, told of calls, taken away without a trace."""

import inspect
import types

import pytest

from tracer.instrument import patching


class _Notes:
    """An observation that notes how a call ended, and may change its arguments."""

    def __init__(self, args, kwargs):
        self.args, self.kwargs = args, kwargs
        self.ends = []

    def begin(self):
        """Notes nothing."""

    def end(self, result, error):
        self.ends.append((result, error))
        return result


def _base():
    class Base:
        @classmethod
        def made(cls, number):
            return cls.__name__, number

        @staticmethod
        def still(number):
            return "still", number

        def plain(self, number):
            return type(self).__name__, number

    return Base


def _heir():
    class Heir(_base()):
        pass

    return Heir


def _module():
    module = types.ModuleType("toy")
    exec("def plain(number):\n    return 'module', number", vars(module))
    return module


OWNERS = [
    (_base, "made", lambda owner: owner.made, ("Base", 3)),
    (_base, "still", lambda owner: owner.still, ("still", 3)),
    (_base, "plain", lambda owner: owner().plain, ("Base", 3)),
    (_heir, "made", lambda owner: owner.made, ("Heir", 3)),
    (_heir, "still", lambda owner: owner.still, ("still", 3)),
    (_heir, "plain", lambda owner: owner().plain, ("Heir", 3)),
    (_module, "plain", lambda owner: owner.plain, ("module", 3)),
]
every_owner = pytest.mark.parametrize(
    ("make", "attribute", "reach", "answer"),
    OWNERS,
    ids=[f"{make.__name__[1:]}.{attribute}" for make, attribute, *_ in OWNERS],
)


def placed_on(owner, attribute, begin, is_on=lambda: True):
    return patching.place(owner, attribute, patching.observing(begin, _fail), is_on)


def _fail(error):
    raise error


def test_a_wrapper_that_outlives_its_session_tells_nobody():
    module, seen = _module(), []
    placed_on(module, "plain", lambda *call: seen.append(call), is_on=lambda: False)
    assert module.plain(3) == ("module", 3)
    assert not seen


def test_what_fails_before_a_call_is_told_and_the_call_goes_on():
    module, told = _module(), []
    wrap = patching.observing(lambda *_: 1 / 0, told.append)
    patching.place(module, "plain", wrap, lambda: True)
    assert module.plain(3) == ("module", 3)
    assert [type(error) for error in told] == [ZeroDivisionError]


def test_an_observation_may_put_a_stand_in_in_the_place_of_the_answer():
    class Replacing(_Notes):
        def end(self, result, error):
            return ["instead of", result]

    module = _module()
    placed_on(module, "plain", lambda _, args, kwargs: Replacing(args, kwargs))
    assert module.plain(3) == ["instead of", ("module", 3)]


@every_owner
def test_a_patch_sees_the_call_and_leaves_its_answer(make, attribute, reach, answer):
    owner, seen = make(), []

    def begin(function, args, kwargs):
        seen.append(_Notes(args, kwargs))
        return seen[-1]

    placed = placed_on(owner, attribute, begin)
    assert reach(owner)(3) == answer
    assert [note.ends for note in seen] == [[(answer, None)]]
    patching.undo(placed)
    assert reach(owner)(3) == answer
    assert len(seen) == 1


@every_owner
def test_undoing_gives_back_the_raw_attribute(make, attribute, reach, answer):
    owner = make()
    before = dict(vars(owner))
    placed = placed_on(owner, attribute, lambda *_: None)
    assert vars(owner)[attribute] is placed.ours
    assert patching.undo(placed) is True
    assert dict(vars(owner)) == before
    assert all(vars(owner)[name] is value for name, value in before.items())


@every_owner
def test_a_patch_keeps_kind_name_and_signature(make, attribute, reach, answer):
    owner = make()
    before, signature = reach(owner), inspect.signature(reach(owner))
    placed_on(owner, attribute, lambda *_: None)
    after = reach(owner)
    assert type(after) is type(before)
    assert after.__name__ == before.__name__
    assert inspect.signature(after) == signature


@every_owner
def test_a_strangers_patch_over_ours_stays(make, attribute, reach, answer):
    owner = make()
    placed = placed_on(owner, attribute, lambda *_: None)
    theirs = staticmethod(lambda *_: "theirs") if isinstance(owner, type) else lambda *_: "theirs"
    setattr(owner, attribute, theirs)
    assert patching.undo(placed) is False
    assert vars(owner)[attribute] is theirs


def test_a_stranger_who_put_the_original_back_is_no_loss():
    owner = _base()
    before = vars(owner)["plain"]
    placed = placed_on(owner, "plain", lambda *_: None)
    owner.plain = before
    assert patching.undo(placed) is True
    assert vars(owner)["plain"] is before


def test_patches_over_each_other_are_undone_in_reverse():
    owner = _heir()
    first = placed_on(owner, "made", lambda *_: None)
    second = placed_on(owner, "made", lambda *_: None)
    assert owner.made(1) == ("Heir", 1)
    assert patching.undo(second)
    assert patching.undo(first)
    assert "made" not in vars(owner)


def test_an_attribute_that_nobody_has_is_refused_and_nothing_is_placed():
    owner = _heir()
    before = dict(vars(owner))
    with pytest.raises(AttributeError, match="missing"):
        placed_on(owner, "missing", lambda *_: None)
    assert dict(vars(owner)) == before


@pytest.mark.parametrize("error", [ValueError("theirs"), KeyboardInterrupt()], ids=repr)
def test_an_exception_passes_as_the_same_object_and_is_told(error):
    module = types.ModuleType("toy")

    def fail():
        raise error

    module.fail = fail
    notes = _Notes((), {})
    placed_on(module, "fail", lambda *_: notes)
    with pytest.raises(type(error)) as caught:
        module.fail()
    assert caught.value is error
    assert notes.ends == [(None, error)]


def test_an_observation_may_hand_other_arguments_on():
    module = _module()
    placed_on(module, "plain", lambda function, args, kwargs: _Notes((args[0] + 1,), kwargs))
    assert module.plain(3) == ("module", 4)


def test_a_refusing_owner_keeps_its_attribute():
    class Refusing(type):
        def __setattr__(cls, name, value):
            raise TypeError(f"{name} can't be set")

    class Sealed(metaclass=Refusing):
        def plain(self):
            return "sealed"

    before = vars(Sealed)["plain"]
    with pytest.raises(TypeError, match="plain can't be set"):
        placed_on(Sealed, "plain", lambda *_: None)
    assert vars(Sealed)["plain"] is before
