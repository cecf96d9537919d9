"""Work in a thread of its own, so that a page stays live: started once, stopped by an event.

The main thread of a kernel may be busy, or may be where callbacks run; only a thread can be stopped
by a button in every release of ipykernel. What fails is told to one function, never lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[threading.Event], None]


class Job:
    """One piece of work at a time.

    Args:
        name: Of the thread, for debuggers.
        failed: Told what the work raised, in its thread.
    """

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def is_alive(self) -> bool:
        """Whether work is going on."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Work) -> bool:
        """Begin, with an event that says when to stop; False where work is going on already."""
        with self._lock:
            if self.is_alive:
                return False
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._do, args=(work, self._stop), name=self._name, daemon=True
            )
            self._thread.start()
            return True

    def stop(self) -> None:
        """Ask the work to end; it ends when it next looks."""
        self._stop.set()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end; whether it came."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        return not self.is_alive

    def _do(self, work: Work, stop: threading.Event) -> None:
        try:
            work(stop)
        # Whatever it is: nobody waits for this thread, so nobody else would hear of it.
        except BaseException as error:
            self._failed(error)


class Latest:
    """Work that is asked for often and of which only the last request counts, such as a count.

    Args:
        name: Of its thread.
        failed: Told what the work raised.
        delay: Seconds of quiet to wait for, since the next request may be a keystroke away.
    """

    def __init__(
        self, name: str, failed: Callable[[BaseException], None], delay: float = 0.3
    ) -> None:
        self._job = Job(name, failed)
        self._delay = delay
        self._lock = threading.Lock()
        self._wanted: Callable[[], None] | None = None
        self._again = threading.Event()

    def ask(self, work: Callable[[], None]) -> None:
        """Have this done when it has been quiet for a moment; what was asked before is dropped."""
        with self._lock:
            self._wanted = work
            self._again.set()
        self._job.start(self._serve)

    def join(self, seconds: float | None = None) -> bool:
        """Wait until nothing is left to do; whether that came."""
        return self._job.join(seconds)

    def _serve(self, _: threading.Event) -> None:
        while True:
            self._again.clear()
            if self._again.wait(self._delay):
                continue
            with self._lock:
                work, self._wanted = self._wanted, None
            if work is None:
                return
            work()
