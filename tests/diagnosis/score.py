"""The doctor's score: every seeded fault, clean twin and healthy run, on one release or on all.

`python tests/diagnosis/score.py` prints recall and precision of each rule on the transformers that
this process imports; `--all` does so for every release that the project tests on, each in a process
of its own. The last line has the two figures; exit status 1 for any missed fault or false alarm.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("4.51.3", "4.57.6")


def main() -> int:
    """Score this release or all; gives the exit status."""
    parser = argparse.ArgumentParser(description="score the doctor on seeded faults")
    parser.add_argument("--all", action="store_true", help="older releases too")
    parser.add_argument("--only", metavar="A,B", help="only cases with one of these in FILE:NAME")
    options = parser.parse_args()
    if not options.all:
        return score(options.only)
    # The oldest first, so that the last line is that of the newest.
    return max(_in_its_own_process(release, options.only) for release in (*RELEASES, None))


def _in_its_own_process(release: str | None, only: str | None) -> int:
    folder = ROOT / ".venv" / "transformers" / str(release)
    if release is not None and not folder.is_dir():
        print(f"transformers {release} is not installed in {folder}: `make test-generations` does")
        return 1
    path = [str(ROOT)] if release is None else [str(folder), str(ROOT)]
    command = [sys.executable, __file__, *(["--only", only] if only else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(command, env=environment, check=False).returncode


def score(only: str | None = None) -> int:
    """Run every case in this process and print a line a rule; 0 where all is as it should be."""
    sys.path[:0] = [str(ROOT / "tests")]
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    os.environ |= {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    import transformers
    from diagnosis.bench import Bench
    from diagnosis.cases import all_cases

    start = time.perf_counter()
    found: Counter[str] = Counter()
    missed: list[tuple[str, str]] = []
    alarms: list[tuple[str, str]] = []
    broken: list[str] = []
    parts = (only or "").split(",")
    cases = [
        case for case in all_cases() if any(part in f"{case.file}:{case.name}" for part in parts)
    ]
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        for case in cases:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    findings = case.findings(bench)
            except Exception:  # a case that can't be made proves nothing, and the others go on
                broken.append(case.name)
                print(f"{case.name} could not be made:", file=sys.stderr)
                traceback.print_exc(limit=-3)
                continue
            lost = case.missed(findings)
            if lost or case.false_alarms(findings):  # now, for whoever does not wait for the end
                print(
                    case.name,
                    "missed",
                    lost,
                    "alarms",
                    case.false_alarms(findings),
                    file=sys.stderr,
                )
            missed += [(rule, case.name) for rule in lost]
            alarms += [(rule, case.name) for rule in case.false_alarms(findings)]
            failed = [one for one in findings.undecided if one.needs == "rule_failed"]
            broken += [f"{one.rule} in {case.name}: {one.reason}" for one in failed]
            if case.kind == "fault":
                found.update(rule for rule in case.rules if rule not in lost)
    print(f"transformers {transformers.__version__}, {len(cases)} cases")
    print("\n".join(_lines(found, missed, alarms)))
    for rule, name in missed:
        print(f"missed       {rule} in {name}")
    for rule, name in alarms:
        print(f"false alarm  {rule} in {name}")
    for text in broken:
        print(f"broken       {text}")
    hits = found.total()
    kinds = Counter(case.kind for case in cases)
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    print(f"{told} in {time.perf_counter() - start:.0f} s")
    print(f"recall {_ratio(hits, len(missed))} precision {_ratio(hits, len(alarms))}")
    return 1 if missed or alarms or broken else 0


def _lines(
    found: Counter[str], missed: list[tuple[str, str]], alarms: list[tuple[str, str]]
) -> list[str]:
    lost, false = (Counter(rule for rule, _ in pairs) for pairs in (missed, alarms))
    names = sorted({*found, *lost, *false})
    width = max(map(len, names), default=4)
    head = f"{'rule':{width}}  seeded  found  false alarms  recall  precision"
    return [head] + [
        f"{name:{width}}  {found[name] + lost[name]:6}  {found[name]:5}  {false[name]:12}  "
        f"{_ratio(found[name], lost[name]):>6}  {_ratio(found[name], false[name]):>9}"
        for name in names
    ]


def _ratio(good: int, bad: int) -> str:
    """Good ones of all, three digits; a dash where there were none."""
    return f"{good / (good + bad):.3f}" if good + bad else "-"


if __name__ == "__main__":
    raise SystemExit(main())
