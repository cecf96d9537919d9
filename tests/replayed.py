"""A replay asked by what its stops show."""


def first(replay, kind, name=None):
    """The details of the first stop of a kind, or of a name among them."""
    for stop in replay.stops.of_kind(kind):
        told = replay.detail(int(stop))
        if name is None or told["title"] == name:
            return told
    raise AssertionError(f"no {kind} called {name}")
