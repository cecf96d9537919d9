"""The doctor: what is known to go wrong, found in a folder, a trace or a live model.

`finding` is what a rule answers, `rules` how one is written and asked, `findings` the list that a
user sees, `examine` the way in. Each other file holds the rules of one stage. Nothing here imports
torch; the words of every rule are data in `explain/LANGUAGE/findings/STAGE.toml`.
"""
