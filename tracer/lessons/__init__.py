"""What the notebooks need as code: a lesson's traces, live or replayed, and its experiments.

No cell of a notebook defines anything. `lesson` records or opens traces; the other modules hold
what one notebook or two do to a model or a folder. Importing none of them imports torch.
"""

from tracer.lessons.lesson import Lesson, keep_traces, versions

__all__ = ["Lesson", "keep_traces", "versions"]
