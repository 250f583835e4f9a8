"""The scripted provider is strict in both directions: what was not played, and what was not in the script, is said."""

from __future__ import annotations

import pytest
from scenes import make_agent

from trio_agent import ProviderError, RetryPolicy
from trio_agent.testing import ScriptedProvider, finish, text


async def test_a_script_that_was_played_is_done() -> None:
    """Each reply was asked for, and each of its steps was played."""
    with ScriptedProvider([text("hi"), finish()]) as provider:
        await make_agent(provider)[0].prompt("go")
        provider.assert_done()


async def test_replies_that_were_never_asked_for_are_noticed() -> None:
    """Also at the end of the block, with how many they are."""
    with (
        pytest.raises(AssertionError, match="differ: 2 replies were never asked for"),
        ScriptedProvider([text("hi"), finish()], [finish()], [finish()]) as provider,
    ):
        await make_agent(provider)[0].prompt("go")


async def test_requests_that_the_script_does_not_have_are_noticed() -> None:
    """The run fails with the number of the request, and so does the end of the block."""
    with (
        pytest.raises(AssertionError, match="differ: 1 requests more than the script has"),
        ScriptedProvider() as provider,
    ):
        result = await make_agent(provider)[0].prompt("go")
        assert "request 1 is not in the script, which has 0" in str(result.error)


async def test_steps_that_were_never_played_are_noticed() -> None:
    """What stood behind a failure is named, unless the caller says that replies may have been cut off."""
    provider = ScriptedProvider([ProviderError("invalid_request", "no"), text("behind"), finish()])
    await make_agent(provider, retry=RetryPolicy(1))[0].prompt("go")
    with pytest.raises(AssertionError, match=r"never played, request 1: .*behind.*; never played, request 1: finish"):
        provider.assert_done()
    provider.assert_done(partly=True)


async def test_what_fails_in_the_block_is_not_hidden() -> None:
    """An exception leaves the block as it is, whatever is left of the script."""
    with pytest.raises(KeyError, match="mine"), ScriptedProvider([finish()]):
        raise KeyError("mine")
