"""`python -m tracer`: the command line. Everything it does is in `tracer.cli`."""

import sys

from tracer.cli import main

if __name__ == "__main__":
    sys.exit(main())
