"""What the README shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trio_agent.testing._diagram import phase_diagram, state_diagram
from trio_agent.testing._rule_examples import rules_table

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("shown", [rules_table, state_diagram, phase_diagram])
def test_the_readme_shows_what_the_data_say(shown: object) -> None:
    """The table of rules and both diagrams are those that the package draws from its own tables."""
    assert callable(shown)
    assert str(shown()) in README


@pytest.mark.parametrize("place", range(3))
def test_every_python_example_compiles(place: int) -> None:
    """The examples are Python."""
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    compile(examples[place], f"README example {place}", "exec")


async def test_the_example_of_a_test_passes() -> None:
    """The README's example of testing one's own agent does what it says."""
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example, "README example", "exec"), names)
    test = names["test_my_tool"]
    assert callable(test)
    await test()


def test_the_first_two_shell_blocks_are_the_two_commands() -> None:
    """One command runs an agent, the next passes the tests; CI runs the second as it stands."""
    first, second = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[:2]
    assert "trio-agent run" in first
    assert "pytest" in second
