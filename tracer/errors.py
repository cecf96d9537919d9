"""The exception tree. Each message says what happened, with which value, and what to do next.

TracerError
├── SessionStateError   a recording started twice, stopped twice, or asked for its trace too early
├── TraceFormatError    a folder, zip or CSV folder that is no trace, or a newer one
├── StorageError        a place that can't be written: exists, is a file, no permission, no space
├── UnknownNameError    a table, column, stage or language that there is not; a KeyError too
├── CheckpointError     a model folder or file that can't be read as one
└── MissingPackageError a part of the lab that needs a package that is not installed

IncompleteTraceWarning  a trace that opens although rows that were written are no longer there
"""


class TracerError(Exception):
    """What the lab itself refuses; the library's and the user's own errors are never wrapped.

    Its message is text, or what can be said in any language: then it is told in the language that
    holds when somebody reads it, and in English where it is written down (`in_english`).
    """

    def __repr__(self) -> str:
        """As it is written down, whatever language holds."""
        return f"{type(self).__name__}({in_english(self)!r})"


class SessionStateError(TracerError):
    """A recording was asked for something that its state does not allow."""


class TraceFormatError(TracerError):
    """What was opened is not a trace that this version can read."""


class StorageError(TracerError):
    """A trace can't be written to the place that was asked for."""


class UnknownNameError(TracerError, KeyError):
    """A table, column, stage, term, rule or language that there is not."""

    def __str__(self) -> str:
        """The message as it is; KeyError would put it in quotes."""
        return str(self.args[0])


class CheckpointError(TracerError):
    """A model folder or checkpoint file can't be read as one.

    Attributes:
        told: The message, as text or as what can be said in any language.
        kind: What is wrong, one of `problems.KINDS`.
        expected: What should be there, a number of bytes or a word; None where nothing says.
        found: What is there.
        missing_bytes: Bytes of the file that are not there; None where it isn't known.
        header: What could be read all the same, a `formats.entries.Header`; mostly None.
    """

    def __init__(
        self,
        told: object,
        *,
        kind: str = "unreadable",
        expected: int | str | None = None,
        found: int | str | None = None,
        missing_bytes: int | None = None,
        header: object = None,
    ) -> None:
        super().__init__(told)
        self.told = told
        self.kind = kind
        self.expected = expected
        self.found = found
        self.missing_bytes = missing_bytes
        self.header = header


class MissingPackageError(TracerError):
    """A part of the lab needs a package that is not installed."""


def in_english(error: BaseException) -> str:
    """The message of an error for a trace, which is the same in whatever language it is made."""
    told = error.args[0] if isinstance(error, TracerError) and error.args else None
    said = getattr(told, "said", None)
    return str(error) if said is None else str(said("en"))


class IncompleteTraceWarning(UserWarning):
    """A trace was opened that no longer has all rows that were written."""
