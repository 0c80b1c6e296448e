"""ISO 8601 durations and the words for types."""

from __future__ import annotations

import pytest

from graphflow.graph.definition.types import cel_type, fits, parse_duration_ms, show


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("P2D", 172_800_000), ("PT15M", 900_000), ("P1W", 604_800_000), ("PT0.5S", 500), ("P1DT2H3M4S", 93_784_000), ("PT1,5H", 5_400_000)],
)  # fmt: skip
def test_a_duration_is_read_to_the_millisecond(text, milliseconds):
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "2D",
        "P2",
        "P1Y",
        "P1M",
        "PT1D",
        "p2d",
        "P-1D",
        "P2D ",
        "P1DT",
        "P" + "9" * 70 + "D",
        "P99999999D",
    ],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="P2D|hundred years"):
        parse_duration_ms(text)


def test_nullable_and_mixed_types_are_dynamic():
    assert cel_type({"type": "number"}) == "double"
    assert cel_type({"type": ["number", "null"]}) == "dyn"
    assert cel_type({}) == "dyn"


def test_decimals_do_not_fit_whole_numbers():
    assert fits("int", ["number"])
    assert not fits("double", ["integer"])
    assert fits("dyn", ["integer"])
    assert fits("double", [])


def test_values_are_shown_short_and_in_words_of_json():
    assert (show(None), show(True), show("x")) == ("null", "true", "'x'")
    assert len(show("x" * 200)) == 60
