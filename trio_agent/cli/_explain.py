"""`trio-agent explain RULE`: a rule in full, with a lawful and an unlawful example.

Here lives the command. The words and the examples are data in `trio_agent.testing`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..testing._rule_examples import explain_rule
from ..testing._rules import RULES
from ._usage import UsageError


def explain(argv: Sequence[str]) -> int:
    """Print rules in full; all of their names and titles if none is named. Raises `UsageError` for an unknown one."""
    parser = argparse.ArgumentParser(prog="trio-agent explain", description="Say what a rule of the lifecycle means.")
    parser.add_argument("rules", metavar="RULE", nargs="*", help="a name such as L3; none lists them all")
    names: list[str] = parser.parse_args(argv).rules
    if not names:
        sys.stdout.writelines(f"{rule.name:4} {rule.title}\n" for rule in RULES)
        return 0
    sys.stdout.write("\n\n".join([_explained(name) for name in names]) + "\n")
    return 0


def _explained(name: str) -> str:
    try:
        return explain_rule(name.upper())
    except KeyError:
        known = ", ".join(rule.name for rule in RULES)
        raise UsageError(f"there is no rule {name!r}; the rules are {known}") from None
