"""Work runs in a thread, ends when asked to, and what fails is heard."""

import threading

from tracer.widgets.job import Job, Latest


def test_a_job_runs_beside_its_caller_and_stops_when_it_is_asked_to():
    began = threading.Event()
    found = []

    def work(stop):
        began.set()
        found.append(stop.wait(30))
        found.append(threading.current_thread().daemon)

    job = Job("test", found.append)
    assert job.start(work)
    assert began.wait(30)
    assert job.is_alive
    assert not job.start(work)  # one at a time
    job.stop()
    assert job.join(30)
    assert found == [True, True]
    assert job.start(lambda stop: found.append(stop.is_set()))
    assert job.join(30)
    assert found[-1] is False  # a stop ends one work, not the next


def test_whatever_a_job_raises_is_told():
    heard = []
    job = Job("test", heard.append)
    error = KeyboardInterrupt("as a signal might")

    def work(stop):
        raise error

    assert job.join()  # nothing was begun
    job.start(work)
    assert job.join(30)
    assert heard == [error]


def test_of_many_requests_the_last_one_is_done():
    done, heard = [], []
    latest = Latest("test", heard.append, 0.05)
    for number in range(20):
        latest.ask(lambda number=number: done.append(number))
    assert latest.join(30)
    assert done[-1] == 19
    assert len(done) < 20
    assert heard == []


def test_a_request_that_comes_while_another_is_worked_on_is_done_too():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        go_on.wait(30)
        done.append("first")

    latest = Latest("test", done.append, 0.0)
    latest.ask(first)
    assert begun.wait(30)
    latest.ask(lambda: done.append("second"))
    go_on.set()
    assert latest.join(30)
    assert done == ["first", "second"]


def test_after_a_failure_the_next_request_is_done():
    done, heard = [], []

    def fails():
        raise ValueError("no")

    latest = Latest("test", heard.append, 0.0)
    latest.ask(fails)
    assert latest.join(30)
    latest.ask(lambda: done.append(1))
    assert latest.join(30)
    assert (len(heard), done) == (1, [1])
