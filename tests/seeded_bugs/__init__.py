"""Mistakes that somebody could make in the package, kept as data, and what says which test notices each.

Here live the patches (`*.toml`, one file for each area), their catalog and the trial that applies one to a copy of the
package. The tree itself is never changed. `python -m tests.seeded_bugs` tries them all.
"""

from .catalog import PACKAGE as PACKAGE
from .catalog import TESTS as TESTS
from .catalog import SeededBug as SeededBug
from .catalog import load as load
from .trial import WIDE as WIDE
from .trial import Verdict as Verdict
from .trial import try_all as try_all
from .trial import unpatched_failures as unpatched_failures
