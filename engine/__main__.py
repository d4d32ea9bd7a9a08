"""`python -m engine` is the `perigee` command."""

import sys

from engine.cli import main

sys.exit(main())
