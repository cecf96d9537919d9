"""`make bench`: what recording, reading and showing cost.

python -m benchmarks [NAME ...] [--quick]

Results go to benchmarks/results.json and from there into the READMEs. A quick run is made of the
smallest sizes, keeps nothing and says only that all of it works.
"""

from __future__ import annotations

import argparse
import importlib
import sys

import torch
from transformers.utils import logging

from benchmarks.figures import Figure, machine
from benchmarks.results import NAMES, keep
from benchmarks.table import shown, write_readmes


def run(name: str, quick: bool) -> list[Figure]:
    """One benchmark's figures; torch computes in one thread, so that the other core is free."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    try:
        figures: list[Figure] = importlib.import_module(f"benchmarks.{name}").measure(quick)
        if not quick:
            keep(name, machine(), figures)
    finally:
        torch.set_num_threads(before)
    return figures


def main() -> None:
    """Measure and print; figures over their budget say so."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="smallest sizes, nothing kept")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}.")
    for name in options.names or NAMES:
        print(name, flush=True)
        for one in run(name, options.quick):
            print(f"  {shown(one)}", flush=True)
    if not options.quick:
        write_readmes()


if __name__ == "__main__":
    main()
