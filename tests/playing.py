"""The player as somebody at the keyboard meets it, in a widget, in a page or in a frame."""

from pathlib import Path
from typing import Any

MODULES = Path(__file__).resolve().parent.parent / "tracer" / "views" / "player"
HOST = "http://player.invalid"
"""Where a page of tests finds the player's modules, one by one."""


def serve_modules(page: Any) -> None:
    """Open a blank page with the modules at an address of their own, and nothing else."""
    page.route(f"{HOST}/**", _serve)
    page.goto(f"{HOST}/blank")


def _serve(route: Any) -> None:
    name = route.request.url.rpartition("/")[2]
    if name.endswith(".js"):
        route.fulfill(content_type="text/javascript", body=(MODULES / name).read_text("utf-8"))
    else:
        look = "".join(path.read_text("utf-8") for path in sorted(MODULES.glob("*.css")))
        body = f"<!doctype html><title>blank</title><style>{look}</style>"
        route.fulfill(content_type="text/html", body=body)


class Playing:
    """A player on a page, found by what it shows."""

    def __init__(self, page: Any, scope: Any = None) -> None:
        self.page = page
        self.scope = page if scope is None else scope
        self.root = self.scope.locator(".tracer-player")

    def __getitem__(self, name: str) -> Any:
        return self.root.locator(f".tp-{name}")

    @property
    def title(self) -> Any:
        return self["title"].locator("h2")

    @property
    def here(self) -> Any:
        """The line of the tree that the cursor is on."""
        return self["line"].and_(self.scope.locator(".tp-here"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.root.press(key)

    def type(self, text: str) -> None:
        """Type where the focus is."""
        self.page.keyboard.type(text)

    def jump(self, text: str) -> None:
        self.press("g")
        self.type(text)
        self.page.keyboard.press("Enter")

    def add_breakpoint(self, kind: str, value: str = "") -> None:
        self["add-kind"].select_option(kind)
        field = self["add-value"].locator("input, select")
        if field.count() and value:
            if field.evaluate("node => node.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        self["add-it"].click()

    def at(self) -> int:
        """The number of the stop, from 1."""
        return int(self["at"].inner_text().split("/")[0].replace(",", ""))

    def listen(self, complaints: list[str]) -> None:
        """Note everything that a page from disk must never do."""
        page = self.page
        page.on("console", lambda told: complaints.append(f"{told.type}: {told.text}"))
        page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
        page.on("dialog", lambda box: (complaints.append(f"dialog: {box.message}"), box.dismiss()))
        page.on("request", lambda asked: _note_request(complaints, asked.url))


def _note_request(complaints: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:", "blob:")):
        complaints.append(f"request to {url}")
