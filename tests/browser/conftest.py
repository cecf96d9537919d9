"""JupyterLab on the loopback and Chromium looking at it, for walks through notebooks.

Everything lies in a fresh folder; nothing waits for a time, only for what a user would see. A walk
fails on any console error, page error, failed request or request that leaves this machine. Each
file of walks says `pytestmark = pytest.mark.browser`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playing import HOST, serve_modules
from small_run import RUN

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 60  # a busy machine is slow, and nothing is gained by giving up early
IDLE = (
    "() => { const w = window.jupyterapp?.shell.currentWidget; return w?.sessionContext?.isReady"
    " && w.sessionContext.session?.kernel?.status === 'idle'; }"
)


class Server:
    """JupyterLab in a folder of its own; `work` is what its file browser sees."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.port = _free_port()
        _write_settings(folder / "settings")
        places = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "run",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "MPLCONFIGDIR": "mpl",
        }
        environment = os.environ | {name: str(folder / place) for name, place in places.items()}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self._log = (folder / "server.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
             "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}",
             "--ServerApp.port_retries=0", "--IdentityProvider.token=",
             f"--ServerApp.root_dir={self.work}", "--expose-app-in-browser",
             "--LabApp.extension_manager=readonly",
             "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
             "--LabApp.news_url="],
            env=environment, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/doc/tree/{name}?reset"

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)  # it ends its kernels too
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # kernels end themselves when their parent is gone
            self._process.wait()
        self._log.close()

    def _wait(self) -> None:
        """Until the server answers anything at all; its own process says when it can't."""
        while self._process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5).close()
            except urllib.error.HTTPError as error:
                error.close()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                continue
            return
        pytest.fail(f"JupyterLab ended: {Path(self._log.name).read_text()[-2000:]}")


# What JupyterLab asks its server for by itself, again and again or when it begins.
_LISTS = tuple(f"/api/{name}" for name in ("sessions", "kernels", "terminals", "nbconvert"))


class Walk:
    """A page with a notebook in it, and whatever it complained of."""

    def __init__(self, page, server: Server, name: str) -> None:
        self.page = page
        self.server = server
        self.name = name
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)

    def open(self, *, kernel: bool = True) -> None:
        self.page.goto(self.server.address(self.name))
        if kernel:
            self.page.wait_for_function(IDLE)

    def command(self, name: str) -> None:
        self.page.evaluate("name => jupyterapp.commands.execute(name)", name)

    def run_all(self) -> None:
        self.command("notebook:run-all-cells")

    def save(self) -> None:
        self.command("docmanager:save")

    def saved(self) -> nbformat.NotebookNode:
        return nbformat.read(self.server.work / self.name, as_version=4)

    def open_without_kernel(self, *, trusted: bool = False) -> None:
        """As on a machine that has no such kernel: the lab asks, and none is taken.

        A notebook of one's own is trusted; in a stranger's the lab leaves no frame and no script.
        """
        notebook = self.saved()
        notebook.metadata.kernelspec = {"name": "absent", "display_name": "Absent"}
        notebook.metadata.came_from = "here" if trusted else "a stranger"  # so that no sign fits it
        nbformat.write(notebook, self.server.work / self.name)
        if trusted:
            NotebookNotary(data_dir=str(self.server.work.parent / "data")).sign(notebook)
        self.page.goto(self.server.address(self.name))
        self.page.locator(".jp-Dialog button", has_text="No Kernel").click()

    def shut_down(self) -> None:
        """End the kernel, as closing and shutting down does."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def _console(self, message) -> None:
        # A busy machine is slow, which the lab tells and is no fault of ours.
        is_slow = "to activate." in message.text
        if message.type in ("error", "warning") and not is_slow:
            self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request) -> None:
        here = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
        if not request.url.startswith(here):
            self.complaints.append(f"request to {request.url}")

    def _failed(self, request) -> None:
        # A page that is left while the lab asks for what it lists: nothing of ours.
        lists = request.url.split("?")[0].endswith(_LISTS)
        if not (lists and "ERR_ABORTED" in (request.failure or "")):
            self.complaints.append(f"{request.failure}: {request.url}")


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    started = Server(tmp_path_factory.mktemp("lab"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    playwright.expect.set_options(timeout=SECONDS * 1000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def modules_page(chromium):
    """A page that has the player's modules at an address of their own, and nothing else."""
    context = chromium.new_context()
    page = context.new_page()
    serve_modules(page)
    yield page
    context.close()


@pytest.fixture
def small_run(modules_page):
    """Run code in a page where a small run, and what plays it, is at hand."""

    def ask(code: str):
        return modules_page.evaluate(f'async () => {{ const HOST = "{HOST}"; {RUN} {code} }}')

    return ask


@pytest.fixture
def walk(server, chromium, tmp_path):
    """Make a `Walk` for a notebook of given cells, or a copy of one of ours."""
    contexts = []

    def begin(name: str, cells: list[str] | Path, **options) -> Walk:
        target = server.work / name
        if isinstance(cells, Path):
            shutil.copy(cells, target)
        else:
            notebook = nbformat.v4.new_notebook(
                cells=[nbformat.v4.new_code_cell(source) for source in cells],
                metadata={"kernelspec": {"name": "python3", "display_name": "Python 3",
                                         "language": "python"}},
            )  # fmt: skip
            nbformat.write(notebook, target)
        settings = {"viewport": {"width": 1280, "height": 1800}, "accept_downloads": True}
        context = chromium.new_context(**settings | options)
        context.set_default_timeout(SECONDS * 1000)
        contexts.append(context)
        return Walk(context.new_page(), server, name)

    yield begin
    for context in contexts:
        context.close()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _write_settings(folder: Path) -> None:
    texts = {
        # Cells out of sight would not be in the page, so that nothing could find them.
        "@jupyterlab/notebook-extension/tracker": '{"windowingMode": "none"}',
        "@jupyterlab/apputils-extension/notification":
            '{"fetchNews": "false", "checkForUpdates": false}',
    }  # fmt: skip
    for name, content in texts.items():
        path = folder / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
