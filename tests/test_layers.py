"""The house stands: imports go from top to ground, in no circle, and replay needs no torch."""

import ast
import fnmatch
import functools
import graphlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "tracer"

# Ground to top. A module may import modules of its own floor and of those above it in this list.
# The first pattern that fits a module's name decides.
FLOORS = [
    ("ground", ["schema", "errors", "privacy", "export.text", "machine"]),
    ("explain", ["explain*"]),
    ("formats", ["formats*"]),
    (
        "files",
        [
            "manifest",
            "clocks",
            "checkpoint",
            "ranks",
            "folder",
            "batches",
            "conditions",
            "contents",
            "recovery",
        ],
    ),
    ("surveys", ["problems", "disagreements", "listing", "survey"]),
    ("stores", ["shortcomings", "archive", "merging", "storage", "journal", "views.labels"]),
    ("tables", ["audit*", "export*", "views.cells"]),
    ("trace", ["frames", "summary", "scrubbing", "trace", "views.tables"]),
    ("recorder", ["short_ids", "sinks", "spans", "ledger", "recorder", "rows", "places"]),
    ("instrument", ["instrument*"]),
    ("session", ["session"]),
    ("environment", ["installed_fonts", "environment"]),
    (
        "models",
        ["demo", "demo.models", "demo.hub", "demo.fetching", "demo.conversion", "demo.drawing"],
    ),
    (
        "tools",
        [
            "verify",
            "inspection",
            "inspecting*",
            "conversation",
            "opening",
            "keeping",
            "branching",
            "lab",
        ],
    ),
    ("analysis", ["analysis*"]),
    ("diagnosis", ["diagnosis*"]),
    ("replaying", ["replaying*"]),
    ("views", ["views*"]),
    ("widgets", ["widgets*"]),
    ("demo", ["demo*"]),
    ("lessons", ["lessons*"]),
    # "" is tracer/__init__.py: public names, for users and cli
    ("door", ["", "arguments", "cli", "__main__"]),
]
REPLAY = ["schema", "errors", "manifest", "ranks", "folder", "storage", "contents", "recovery"]
REPLAY += ["journal", "batches", "conditions", "archive", "merging", "frames", "trace", "summary"]
REPLAY += ["scrubbing", "shortcomings", "formats*", "problems", "disagreements", "listing"]
REPLAY += ["survey", "machine", "installed_fonts", "audit*", "export*", "analysis*", "replaying*"]
REPLAY += ["views*", "explain*"]
# The way in to the doctor may inspect a folder, which may build a model; rules on a live one may
# compare it with its files. All others ask no torch.
REPLAY += ["diagnosis.[!el]*", "diagnosis.loading"]
LIVE_PACKAGES = {"torch", "torchvision", "transformers", "accelerate", "tokenizers", "safetensors"}
LIVE_PACKAGES |= {"qwen_vl_utils", "huggingface_hub"}
LIVE = [
    "instrument*",
    "verify",
    "opening",
    "branching",
    "lab",
    "demo*",
    "lessons*",
    "environment",
    "widgets*",
    "inspecting.expectation",
    "inspecting.placing",
]


def modules_in(package: Path) -> dict[str, Path]:
    """Map dotted names inside the package to files; the package itself is ''."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class _WithoutTypeImports(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)


@functools.cache  # each file is asked for by a hundred tests
def imported_names(path: Path, *, for_types: bool = True) -> set[str]:
    """Collect what a file imports anywhere in it, as dotted names with `from` names appended."""
    names = set()
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree if for_types else _WithoutTypeImports().visit(tree)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write the import from the package's root"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@functools.cache
def inner_imports(package: Path, *, for_types: bool = True) -> dict[str, set[str]]:
    """Map each module to the modules of the package that it imports."""
    modules = modules_in(package)
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        if module == "":
            continue  # its imports are lazy or for type checkers: a list of names, not a floor
        for name in imported_names(path, for_types=for_types):
            first, _, inner = name.partition(".")
            if first == package.name:
                # `from tracer.schema import TABLES` names a thing inside the module.
                target = inner if inner in modules else inner.rpartition(".")[0]
                graph[module].add(target)
    return graph


def fits(module: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns)


def floor_of(module: str) -> int | None:
    numbers = (number for number, (_, names) in enumerate(FLOORS) if fits(module, names))
    return next(numbers, None)


def upward_imports(package: Path) -> list[str]:
    """List imports that lead from a floor to one above it."""
    return [
        f"{module or 'tracer'} imports {target or 'tracer'}, which stands above it"
        for module, targets in inner_imports(package).items()
        for target in sorted(targets)
        if (floor_of(target) or 0) > (floor_of(module) or 0)
    ]


def cycle_in(package: Path) -> list[str]:
    # Two modules of one floor may name each other's types: nothing is imported when they run.
    try:
        graphlib.TopologicalSorter(inner_imports(package, for_types=False)).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def reached_from(module: str, graph: dict[str, set[str]]) -> set[str]:
    reached, waiting = set(), [module]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting.extend(graph.get(current, ()))
    return reached


def live_imports(path: Path) -> set[str]:
    names = imported_names(path, for_types=False)
    return {name.partition(".")[0] for name in names} & LIVE_PACKAGES


@pytest.mark.parametrize("module", modules_in(PACKAGE))
def test_every_module_has_a_floor(module):
    assert floor_of(module) is not None, (
        f"tracer/{module.replace('.', '/')} stands on no floor. Add it to FLOORS in {__file__}, "
        "on the lowest floor whose modules it imports, and to the tree in README.md."
    )


def test_every_inner_import_leads_to_a_module():
    targets = set().union(*inner_imports(PACKAGE).values())
    assert targets <= set(modules_in(PACKAGE))


def test_imports_go_from_top_to_ground():
    assert upward_imports(PACKAGE) == []


def test_no_import_goes_in_a_circle():
    assert cycle_in(PACKAGE) == []


@pytest.mark.parametrize("module", [name for name in modules_in(PACKAGE) if fits(name, REPLAY)])
def test_replay_reaches_neither_torch_nor_instrument(module):
    modules = modules_in(PACKAGE)
    reached = reached_from(module, inner_imports(PACKAGE, for_types=False))
    assert not [name for name in reached if fits(name, ["instrument*"])]
    assert not [name for name in reached & set(modules) if live_imports(modules[name])]


@pytest.mark.parametrize("module", [name for name in modules_in(PACKAGE) if not fits(name, LIVE)])
def test_only_live_rooms_import_torch_and_its_company(module):
    assert live_imports(modules_in(PACKAGE)[module]) == set()


def house(folder: Path, **sources: str) -> Path:
    package = folder / "tracer"
    package.mkdir()
    for module, source in sources.items():
        (package / f"{module}.py").write_text(source)
    return package


def test_an_upward_import_inside_a_function_is_found(tmp_path):
    package = house(tmp_path, schema="def f():\n    from tracer.trace import Trace", trace="")
    assert upward_imports(package) == ["schema imports trace, which stands above it"]


def test_a_circle_on_one_floor_is_found(tmp_path):
    package = house(tmp_path, schema="from tracer import errors", errors="import tracer.schema")
    assert set(cycle_in(package)) == {"schema", "errors"}


def test_the_front_door_is_no_short_cut(tmp_path):
    package = house(tmp_path, __init__="", storage="from tracer import record")
    assert upward_imports(package) == ["storage imports tracer, which stands above it"]


def test_names_of_types_make_no_circle(tmp_path):
    block = "if TYPE_CHECKING:\n    from tracer.errors import TracerError"
    package = house(tmp_path, schema=block, errors="import tracer.schema")
    assert cycle_in(package) == []


def test_torch_is_seen_behind_another_room(tmp_path):
    package = house(tmp_path, storage="import tracer.audit", audit="import torch.nn as nn")
    assert reached_from("storage", inner_imports(package)) == {"storage", "audit"}
    assert live_imports(package / "audit.py") == {"torch"}
