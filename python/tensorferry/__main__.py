"""`python -m tensorferry` is the command `tensorferry`."""

import sys

from tensorferry.cli import main

sys.exit(main())
