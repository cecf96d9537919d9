"""`make bench`: every benchmark in its short form, one JSON."""

from __future__ import annotations

import json

from benchmarks import hooks, recording


def main() -> None:
    """Measure and print."""
    found = {
        "module call": hooks.measure(),
        "demo": recording.measure("demo", 5),
        "135M": recording.measure("135m", 5),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
