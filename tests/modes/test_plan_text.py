"""A plan is read out of whatever a model wrote around it, and what it leaves out has a sensible value (spec 1.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.nodes.plan_text import PlanError, only_step, parse_plan

STEP = {"taskId": "a", "title": "T", "description": "D", "goal": "G", "successCriteria": "C", "status": "init"}
FIELDS = set(STEP)


def test_a_whole_step_is_taken_as_it_is_and_has_not_begun():
    assert parse_plan(json.dumps({"steps": [{**STEP, "status": "completed", "more": 1}]})) == [STEP]


def test_missing_fields_say_what_the_title_says():
    assert parse_plan('{"steps": [{}, {"title": "Look"}]}') == [
        {
            "taskId": "step-1", "title": "Step 1", "description": "Step 1", "goal": "Step 1",
            "successCriteria": "This is reached: Step 1", "status": "init",
        },
        {
            "taskId": "step-2", "title": "Look", "description": "Look", "goal": "Look",
            "successCriteria": "This is reached: Look", "status": "init",
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        '{"steps": [{"title": "Look"}]}',
        '[{"title": "Look"}]',
        '["Look"]',
        '{"tasks": ["Look"]}',
        '{"plan": {"steps": ["Look"]}}',
        'Here it is:\n```json\n{"steps": ["Look"]}\n```\nShall I?',
        'Sure! {"steps": [{"name": "Look"}]} That is all.',
    ],
)
def test_a_plan_is_found_in_many_forms(text: str):
    assert [step["title"] for step in parse_plan(text)] == ["Look"]


def test_ids_are_unique_and_texts_also_where_the_model_gives_numbers_or_lists():
    steps = parse_plan(json.dumps([{"id": 1}, {"id": 1}, {"taskId": "step-2"}, {"successCriteria": ["a", "b"]}]))
    assert [step["taskId"] for step in steps] == ["1", "step-2", "step-3", "step-4"]
    assert steps[3]["successCriteria"] == "a; b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I would look first.", "no JSON"),
        ('{"steps": [{"title": "Lo', "can't be read"),
        ('{"steps": []}', "no steps"),
        ('{"answer": 42}', "'answer'"),
        ('{"steps": [3]}', "steps[0] is 3"),
        ("", "no JSON"),
    ],
)
def test_what_is_no_plan_is_refused_with_what_is_wrong(text: str, said: str):
    with pytest.raises(PlanError) as refused:
        parse_plan(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("request_", ["Who is it?", "  ", 'say "hi" {now}'])
def test_the_request_itself_is_a_plan(request_: str):
    [step] = only_step(request_)
    assert step["title"] == (request_.strip() or "Answer the request")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["steps", "title", "id", "x"]), inner),
    max_leaves=12,
)


def read(text: str) -> list[dict[str, str]] | None:
    """The steps; None for a text that is refused."""
    try:
        return parse_plan(text)
    except PlanError:
        return None


@given(JSON)
def test_any_json_is_a_plan_or_refused(value: Any):
    steps = read(json.dumps(value))
    assert steps is None or (steps and all(set(step) == FIELDS and all(step.values()) for step in steps))
    assert len({step["taskId"] for step in steps or ()}) == len(steps or ())


@given(st.text(max_size=60))
def test_any_text_is_a_plan_or_refused(text: str):
    assert read(text) != []


@pytest.mark.parametrize(
    "text",
    ["```" + "\n" * 100_000, "```" + " \t" * 50_000, "```" + "a" * 100_000, "```\n" * 25_000, "{" * 100_000],
    ids=["newlines", "blanks", "word", "fences", "braces"],
)
def test_a_long_text_without_a_plan_is_refused_in_one_pass(text: str):
    """One pass takes milliseconds; a pattern that tries each position again takes most of a minute."""
    with pytest.raises(PlanError):
        parse_plan(text)


def test_many_steps_of_one_id_are_numbered_in_one_pass():
    """Each taken number is tried once: trying them anew for each step takes half a minute here."""
    half = 10_000
    steps: list[dict[str, str]] = [{"id": f"step-{half + number}"} for number in range(1, half + 1)]
    given = parse_plan(json.dumps(steps + [{} for _ in range(half)]))
    assert len({step["taskId"] for step in given}) == 2 * half


def test_json_that_is_nested_too_deeply_is_no_plan():
    with pytest.raises(PlanError):
        parse_plan('[{"title":' + "[" * 900 + "]" * 900 + "}]")
