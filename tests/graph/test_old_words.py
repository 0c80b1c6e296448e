"""Old words of the format: authored documents are refused with the new word, stored ones run as they were compiled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from graphflow import errors
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.core.route_trace import read_moves
from graphflow.graph.definition.old_words import ERROR_CODES, renewed, renewed_error
from graphflow.graph.definition.source import parse_source
from graphflow.graph.validation.validate import check_document
from tests.graph.documents import FakeKinds, document


def issues_of(source: Any) -> tuple[Issue, ...]:
    with pytest.raises(DefinitionError) as raised:
        check_document(source, FakeKinds())
    return raised.value.errors


def with_key(**schema: Any) -> dict[str, Any]:
    return {"state": {"log": {"type": "array", "default": [], **schema}}}


LOG = "/state/properties/log"
OLD = [
    ({"always": ["end reachable"]}, "/always", "always", "invariants"),
    ({"budget": {"maxSteps": 5, "then": "answer"}}, "/budget/then", "then", "onExceeded"),
    (with_key(**{"x-reduce": "append"}), f"{LOG}/x-reduce", "x-reduce", "x-reducer"),
    (with_key(**{"x-life": "run"}), f"{LOG}/x-life", "x-life", "x-scope"),
    (with_key(**{"x-scope": "frame"}), f"{LOG}/x-scope", "frame", "thread"),
]


@pytest.mark.parametrize(("keys", "pointer", "old", "new"), OLD, ids=[old for _, _, old, _ in OLD])
def test_an_authored_document_with_an_old_word_is_refused_with_the_new_one(keys, pointer, old, new):
    (issue,) = issues_of(document(**keys))
    assert (issue.pointer, issue.severity) == (pointer, "error")
    assert repr(old) in issue.message and repr(new) in issue.message and issue.hint == f"write {new!r}"


def test_the_error_stands_where_the_old_word_is_written():
    text = msgspec.json.format(msgspec.json.encode(document(always=["end reachable"])), indent=1).decode()
    (issue,) = issues_of(parse_source(text))
    assert text.splitlines()[(issue.line or 0) - 1].lstrip().startswith('"always"')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"x-life": "run"}, {"x-scope": "run"}),
        ({"x-life": "thread"}, {"x-scope": "thread"}),
        ({"x-scope": "frame"}, {"x-scope": "thread"}),
        ({"x-scope": "branch"}, {"x-scope": "branch"}),
        ({"x-life": "run", "x-scope": "frame"}, {"x-scope": "run"}),
        ({"x-life": "run", "x-scope": "branch"}, {"x-scope": "branch"}),
        ({"x-scope": "branch", "x-life": "thread"}, {"x-scope": "branch"}),
    ],
)
def test_life_and_scope_of_a_stored_document_are_one_scope(old, new):
    found, outdated = renewed(document(**with_key(**old)))
    assert found == document(**with_key(**new))
    assert bool(outdated) is (old != new) and renewed(found) == (found, [])
    check_document(found, FakeKinds())


def test_a_document_without_old_words_is_read_as_it_is():
    data = document(**with_key(**{"x-reducer": "append"}))
    assert renewed(data)[0] is data


def test_what_is_wrong_below_an_old_word_is_reported_where_it_stands():
    found = issues_of(document(always=[5], **with_key(**{"x-life": "runs", "x-reduce": "add"})))
    assert {issue.pointer for issue in found} == {"/always", "/always/0", f"{LOG}/x-life", f"{LOG}/x-reduce"}


def test_a_document_in_place_is_refused_too():
    inner = document(always=["end reachable"])
    (issue,) = issues_of(document({"answer": {"graph": inner}}))
    assert issue.pointer == "/nodes/answer/graph/always" and "'invariants'" in issue.message


@pytest.mark.parametrize(("old", "new"), ERROR_CODES.items())
def test_a_stored_error_has_its_code_of_today(old, new):
    assert new in errors.ERROR_CODES and old not in errors.ERROR_CODES
    assert renewed_error({"code": old, "message": "m"}) == {"code": new, "message": "m"}
    (move,) = read_moves({"moves": [[0, "", "a", 1, "b", "error", {}, {}, {}, [old, "m"]]]})
    assert move.error == (new, "m")


def test_an_error_without_an_old_code_is_read_as_it_is():
    error = {"code": "timeout", "message": "m"}
    assert renewed_error(error) is error and renewed_error(None) is None
