"""For all tests, those of the examples too."""

import os
import sys

# Whatever the machine says: each of the many programs that are started would compile all their modules anew, for longer
# than they take to start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
