"""The version hash: RFC 8785 canonical JSON under SHA-256, Merkle-wise (E23)."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.graph.definition.version_hash import canonical_json, digest, version_hash


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (-1.5, "-1.5"), (5e-324, "5e-324"), (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"), (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"), (1.0000000000000001e23, "1.0000000000000001e+23"), (999999999999999700000.0, "999999999999999700000"),
        (999999999999999900000.0, "999999999999999900000"), (1e21, "1e+21"), (1e20, "100000000000000000000"),
        (9.999999999999997e-7, "9.999999999999997e-7"), (0.000001, "0.000001"), (1e-7, "1e-7"), (333333333.3333332, "333333333.3333332"),
        (4.5, "4.5"), (0.002, "0.002"), (1e30, "1e+30"), (1e-27, "1e-27"), (123456.789, "123456.789"), (2**64, "18446744073709551616"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_ecmascript_writes_them(number, text):
    """The values are those of RFC 8785, appendix B, and the edges of each notation."""
    assert canonical_json(number).decode() == text


def test_the_example_of_the_rfc():
    """RFC 8785, section 3.2.2."""
    given_ = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }
    assert canonical_json(given_).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf16_code_units():
    """RFC 8785, section 3.2.3."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    written = json.loads(canonical_json(dict.fromkeys(keys)), object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    assert written == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_as_itself(number):
    assert float(canonical_json(number)) == number


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_canonical_json_is_json_of_the_same_data(data):
    assert json.loads(canonical_json(data)) == data


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_matter(data):
    assert digest(dict(reversed(list(data.items())))) == digest(data)


@pytest.mark.parametrize("data", [float("nan"), float("inf"), "\ud800", {1: 2}, object(), b"x", {"\udc00": 1}])
def test_what_json_can_not_hold_is_refused(data):
    with pytest.raises(ValueError, match="."):
        digest(data)


def test_a_digest_names_its_algorithm():
    assert digest({}) == "sha256:" + hashlib.sha256(b"{}").hexdigest()


def test_a_document_that_refers_to_nothing_hashes_as_its_own_json():
    assert version_hash({"a": 1}, graphs={}, names={}) == digest({"a": 1})


def test_what_a_document_refers_to_is_part_of_its_hash():
    one = version_hash({}, graphs={"graph:a": "sha256:1"}, names={})
    assert one != version_hash({}, graphs={"graph:a": "sha256:2"}, names={})
    assert one != version_hash({}, graphs={}, names={})
    assert version_hash({}, graphs={}, names={"tool:x": "1"}) != version_hash({}, graphs={}, names={"tool:x": "2"})
