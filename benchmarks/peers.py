"""What else one could take, on the same work: each peer beside its own baseline, in one run.

    python -m benchmarks.peers [--install] [--quick] [NAME ...]

Each peer lives in a folder of its own under benchmarks/runs/peers, which stands first on its
process's path, and is measured in a process of its own: some leave things behind. Timed is what a
user does: attach, the work, detach; writing a file of the result is not. What a peer can't do is a
dash with what happened when it was tried.

To add one: a function from a piece of work to the work done under the peer, and a row of `PEERS`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, machine
from benchmarks.pairs import ratio, timed
from benchmarks.results import keep
from benchmarks.table import write_readmes

FOLDER = Path(__file__).parent / "runs" / "peers"
WORKS = ("forward", "load", "decode")  # the longest at the end, should the time run out
ROUNDS = 3
LIMIT_SECONDS = 400  # for all of a peer's work
FORWARD_TOKENS, PROMPT_TOKENS, NEW_TOKENS = 128, 32, 12


class CannotError(Exception):
    """The peer can't do this work, and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """One piece of work: `call` does it; `function` of `arguments` is what it calls."""

    name: str
    call: Callable[[], Any]
    function: Callable[..., Any]
    arguments: dict[str, Any]
    model: Any  # None while it is being loaded
    scratch: Path


Under = Callable[[], object]  # the work under the peer, done once


def plain(work: Work) -> Under:
    return work.call


def tracer_stages(work: Work) -> Under:
    return lambda: _recorded(work, "stages")


def tracer_layers(work: Work) -> Under:
    return lambda: _recorded(work, "layers")


def tracer_modules(work: Work) -> Under:
    return lambda: _recorded(work, "modules")


def _recorded(work: Work, detail: Any) -> None:
    import tracer

    with tracer.record(detail=detail):
        work.call()


def hook_pair(work: Work) -> Under:
    """A pair of empty hooks on every module: the least that hooks can cost."""
    modules = list(_model(work).modules())

    def run() -> None:
        handles = [one.register_forward_pre_hook(lambda *_: None) for one in modules]
        handles += [one.register_forward_hook(lambda *_: None) for one in modules]
        work.call()
        for handle in handles:
            handle.remove()

    return run


def torch_profiler(work: Work) -> Under:
    return _within(work, _profile)


def torch_profiler_shapes(work: Work) -> Under:
    return _within(work, lambda: _profile(record_shapes=True))


def _profile(**options: Any) -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], **options)


def c_profile(work: Work) -> Under:
    import cProfile

    return _within(work, cProfile.Profile)


def viztracer(work: Work) -> Under:
    from viztracer import VizTracer

    def run() -> None:
        tracer = VizTracer(tracer_entries=5_000_000, verbose=0)
        tracer.start()
        work.call()
        tracer.stop()
        tracer.clear()

    return run


def memray(work: Work) -> Under:
    from memray import Tracker

    target = work.scratch / "memray.bin"

    def run() -> None:
        target.unlink(missing_ok=True)
        with Tracker(target):
            work.call()

    return run


def library_debugger(work: Work) -> Under:
    """The library's own tool for people who port a model to it."""
    from transformers.model_debugging_utils import model_addition_debugger_context

    model = _model(work)
    options = {"debug_path": str(work.scratch / "debugger"), "do_prune_layers": False}
    return _within(work, lambda: model_addition_debugger_context(model, **options))


def torchlens(work: Work) -> Under:
    import torchlens

    model = _model(work)
    others = {name: one for name, one in work.arguments.items() if name != "input_ids"}
    asked = model if work.name == "forward" else work.function
    return lambda: torchlens.trace(asked, [work.arguments["input_ids"]], others)


def nnsight(work: Work) -> Under:
    """Interventions are asked for by name; here each layer's output is saved once a forward."""
    from nnsight import NNsight

    watched = NNsight(_model(work))
    ids = work.arguments["input_ids"]
    if work.name == "decode":
        others = {name: one for name, one in work.arguments.items() if name != "input_ids"}
        return lambda: _saved_layers(watched, watched.trace(ids, fn=work.function, **others))
    return lambda: _saved_layers(watched, watched.trace(ids))


def _saved_layers(watched: Any, trace: Any) -> None:
    with trace:
        for layer in watched.model.layers:
            layer.output.save()


def transformer_lens(work: Work) -> Under:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    from tracer.demo import checkpoint_folder

    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder())
    model = _model(work)
    name = str(work.scratch / "model")
    bridge = TransformerBridge.boot_transformers(name, hf_model=model, tokenizer=tokenizer)
    if work.name == "decode":
        raise CannotError("its cache of activations is of one forward")
    return lambda: bridge.run_with_cache(work.arguments["input_ids"])


def _model(work: Work) -> Any:
    if work.model is None:
        raise CannotError("it attaches to a model, and there is none before the load")
    return work.model


def _within(work: Work, context: Callable[[], Any]) -> Under:
    def run() -> None:
        with context():
            work.call()

    return run


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A peer: its adapter, and what pip installs for it; none for what is there anyway."""

    under: Callable[[Work], Under]
    packages: tuple[str, ...] = ()


# Packages that a peer wants and .venv has are left out: torch and transformers stay as they are.
PEERS: dict[str, Peer] = {
    "control": Peer(plain),
    "tracer, stages": Peer(tracer_stages),
    "tracer, layers": Peer(tracer_layers),
    "tracer, modules": Peer(tracer_modules),
    "hook pair": Peer(hook_pair),
    "cProfile": Peer(c_profile),
    "torch.profiler": Peer(torch_profiler),
    "torch.profiler, shapes": Peer(torch_profiler_shapes),
    "library's debugger": Peer(library_debugger),
    "viztracer": Peer(viztracer, ("viztracer", "objprint")),
    "memray": Peer(memray, ("memray", "rich", "markdown-it-py", "mdurl", "pygments", "textual")),
    "nnsight": Peer(
        nnsight,
        ("nnsight", "greenlet", "cloudpickle", "zstandard", "websocket-client", "pydantic",
         "pydantic-core", "annotated-types", "typing-inspection"),
    ),
    "TorchLens": Peer(torchlens, ("torchlens", "graphviz")),
    "TransformerLens": Peer(
        transformer_lens,
        ("transformer-lens", "beartype", "einops", "fancy-einsum", "jaxtyping", "wadler-lindig",
         "typeguard<5", "datasets", "dill", "multiprocess", "xxhash", "aiohttp", "aiosignal",
         "frozenlist", "multidict", "yarl", "propcache", "aiohappyeyeballs", "sentencepiece",
         "transformers-stream-generator", "protobuf", "wandb"),
    ),
}  # fmt: skip


def folder_of(name: str) -> Path:
    """Where a peer's packages lie."""
    return FOLDER / name


def install(names: list[str]) -> None:
    """Install each peer into its own folder; one that can't be had is said and left out."""
    for name in names:
        packages = PEERS[name].packages
        if not packages or folder_of(name).exists():
            continue
        command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        command += ["--no-deps", "--target", str(folder_of(name)), *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name} can't be had: {_last_line(done.stderr)}", file=sys.stderr)


def works(folder: Path, scratch: Path, name: str) -> Work:
    """The piece of work of that name, on a checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)

    def load() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder)

    if name == "load":
        return Work(name, load, AutoModelForCausalLM.from_pretrained, {}, None, scratch)
    model = load().eval()
    tokens = FORWARD_TOKENS if name == "forward" else PROMPT_TOKENS
    ids = torch.arange(5, 5 + tokens).remainder(model.config.vocab_size)[None]
    arguments: dict[str, Any] = {"input_ids": ids}
    function = model
    if name == "decode":
        function = model.generate
        arguments["attention_mask"] = torch.ones_like(ids)
        arguments |= {"do_sample": False, "max_new_tokens": NEW_TOKENS, "use_cache": True}

    def call() -> Any:
        with torch.no_grad():
            return function(**arguments)

    return Work(name, call, function, arguments, model, scratch)


def measure_here(name: str, what: str, folder: Path, rounds: int) -> Figure:
    """One peer on one piece of work, in this process; a dash with the reason where it can't."""
    title = f"peers, {what}, {name}"
    with tempfile.TemporaryDirectory() as scratch:
        work = works(folder, Path(scratch), what)
        work.call()
        try:
            under = PEERS[name].under(work)
            under()  # the first use of a tool builds what later ones find
            return ratio(title, lambda: timed(work.call), lambda: timed(under), rounds)
        except CannotError as error:
            return dash(title, str(error))
        except Exception as error:
            return dash(title, f"{type(error).__name__}: {_last_line(str(error))}")


def dash(title: str, reason: str) -> Figure:
    """No figure, and why."""
    return Figure(title, "x", None, rounds=0, note=reason)


def measure(names: list[str], quick: bool) -> list[Figure]:
    """Every peer on every piece of work, each in a process of its own."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        command = [sys.executable, "-m", "benchmarks.peers", "--make", str(folder)]
        subprocess.run([*command, *(["--quick"] if quick else [])], check=True)
        for name in names:
            for one in _apart(name, folder, 1 if quick else ROUNDS):
                print(one.name, one.value, one.processor, one.note, file=sys.stderr, flush=True)
                found.append(one)
    return found


def _apart(name: str, folder: Path, rounds: int) -> list[Figure]:
    """A peer in a process of its own; what it had not done by the end is a dash."""
    if PEERS[name].packages and not folder_of(name).exists():
        return _dashes(name, WORKS, "could not be installed")
    paths = [str(folder_of(name)), str(Path(__file__).parent.parent)]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.peers", name]
    command += ["--folder", str(folder), "--rounds", str(rounds)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_SECONDS,
            env=os.environ | settings, check=False,
        )  # fmt: skip
        told, reason = done.stdout, _last_line(done.stderr)
    except subprocess.TimeoutExpired as error:
        told = (error.stdout or b"").decode()
        reason = f"not done within {LIMIT_SECONDS} s"
    found = [Figure(**json.loads(line)) for line in told.splitlines()]
    return [*found, *_dashes(name, WORKS[len(found) :], reason)]


def _dashes(name: str, whats: Sequence[str], reason: str) -> list[Figure]:
    return [dash(f"peers, {what}, {name}", reason) for what in whats]


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no word of what was wrong"


def main() -> None:
    """Install, measure, and add what was found to the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--install", action="store_true", help="install what is missing first")
    parser.add_argument("--quick", action="store_true", help="a toy, once, and keep nothing")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        room = importlib.import_module("benchmarks.checkpoints")
        (room.toy if options.quick else room.shaped_like_135m)(options.make)
    elif options.folder:
        for what in WORKS:
            with contextlib.redirect_stdout(sys.stderr):  # some peers print
                found = measure_here(options.names[0], what, options.folder, options.rounds)
            print(json.dumps(dataclasses.asdict(found)), flush=True)
    else:
        names = options.names or list(PEERS)
        if options.install:
            install(names)
        figures = measure(names, options.quick)
        if not options.quick:
            keep("peers", machine(), figures)
            write_readmes()


if __name__ == "__main__":
    main()
