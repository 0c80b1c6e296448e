"""`ScriptedModel` as users write it in tests: a script as data, and what it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import load_graph
from graphflow.models.scripted.model import MOST_REQUESTS
from graphflow.models.scripted.script import ScriptError
from graphflow.testing import ScriptedModel

AGENT = {"mode": "PLAIN", "plain": {"systemPrompt": "Be short."}}


@pytest.mark.parametrize(
    "script",
    [
        {"turns": [{"text": "Waves."}]},
        [{"text": "Waves."}],
        ({"match": "sea", "turn": {"text": "Waves."}},),
        {"otherwise": {"text": "Waves."}},
    ],
    ids=["object", "turns", "rules", "otherwise"],
)
async def test_a_script_may_be_given_as_data(script: Any) -> None:
    result = await load_graph(AGENT, model=ScriptedModel(script)).run("The sea?")
    assert result.output == "Waves."


@pytest.mark.parametrize(
    "script",
    [
        {"turns": ["Waves."]},
        {"turn": [{"text": "x"}]},
        {"text": "Waves."},
        "Waves.",
        7,
        [7],
        {"rules": [{"match": "("}]},
    ],
    ids=str,
)
def test_what_is_no_script_is_refused_at_once(script: Any) -> None:
    """And not in the first call, in the middle of a run."""
    with pytest.raises(ScriptError):
        ScriptedModel(script)


async def test_what_the_model_was_asked_can_be_asserted() -> None:
    model = ScriptedModel({"turns": [{"text": "Waves."}]})
    await load_graph({**AGENT, "options": {"temperature": 0.2}}, model=model).run("The sea?")
    (request,) = model.requests
    assert (request.system, request.prompt, request.options.temperature) == ("Be short.", "The sea?", 0.2)
    assert [message.role for message in request.messages] == ["system", "user"]


async def test_a_model_that_serves_for_long_keeps_its_newest_requests_only() -> None:
    assert ScriptedModel().requests.maxlen == MOST_REQUESTS
