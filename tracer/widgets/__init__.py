"""The explorer and the player, for the page of a notebook.

The explorer is a plain state, a view of it, widgets that show it; the player answers what its page
script asks of a recorded run (`tracer.replaying` says what that is).

Callbacks change the state and return at once; what takes time runs in a thread (`job`), which
reaches the page through traits only. `state` and `report` know no widget, so that all of it can be
tested without a browser; `panel` is the only room that lays widgets out.
"""
