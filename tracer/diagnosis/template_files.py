"""A folder's chat templates as text, and the rule that asks whether they can be read at all.

Templates are parsed, never rendered: a stranger's would run.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tracer.diagnosis.finding import Found, Untold, cells
from tracer.diagnosis.rules import Answers, rule

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_IN_JSON: Final = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
_BY_ITSELF: Final = "chat_template.jinja"
_OWN_TAG: Final = "generation"
"""A tag of transformers' own: it marks what the assistant said (chat_template_utils.py, 5.24.0)."""


def template_texts(inspection: Inspection) -> dict[str, str]:
    """Each template's text, by its file and, of several in one, its name."""
    found: dict[str, str] = {}
    for file in _IN_JSON:
        held = inspection.survey.settings.get(file, {}).get("chat_template")
        for one in held if isinstance(held, list) else ():
            if isinstance(one, dict):
                found[f"{file}: {one.get('name')}"] = str(one.get("template"))
        if isinstance(held, str):
            found[file] = held
    if _BY_ITSELF in inspection.tokenizer.templates:
        path = inspection.folder / _BY_ITSELF
        found[_BY_ITSELF] = path.read_text("utf-8", "replace")
    return found


@rule("template_broken", "fatal", "folder", "vllm-project/vllm#15230")
def template_broken(inspection: Inspection) -> Answers:
    """A chat template that is no Jinja: cut, or with its marks damaged."""
    texts = template_texts(inspection)
    if texts and find_spec("jinja2") is None:
        yield Untold("jinja")
        return
    broken = list(_broken(texts))
    if broken:
        _, line, reason = broken[0]
        yield Found(
            {"files": [one for one, _, _ in broken], "line": line, "reason": reason},
            tuple(
                cells("facts", {"source": one, "fact": "chat template"}, line=place, error=why)
                for one, place, why in broken
            ),
        )


def _broken(texts: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """File, line and reason of each text that can't be parsed."""
    if not texts:
        return
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols

    class OwnTag(Extension):
        tags = {_OWN_TAG}  # noqa: RUF012  (as the base class has it)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements((f"name:end{_OWN_TAG}",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    reader = jinja2.Environment(extensions=[OwnTag, loopcontrols], autoescape=True)
    for file, text in texts.items():
        try:
            reader.parse(text)
        except jinja2.TemplateSyntaxError as error:
            yield file, error.lineno, str(error.message)
