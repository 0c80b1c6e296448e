"""Strict JSON with the place of everything, and three-quoted prompts (spec 1.1)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.source import parse_source, read_source

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


def issues(text):
    with pytest.raises(DefinitionError) as caught:
        parse_source(text, file="f.json")
    assert {issue.kind for issue in caught.value.errors} == {"syntax"}
    return caught.value.errors


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_valid_json_reads_as_the_standard_library_reads_it(data, indent, ascii_only):
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    assert parse_source(text).data == json.loads(text) == data


@given(st.text(alphabet='{}[]":,\\ \n0123456789-+.eEtrufalsn"', max_size=60))
def test_any_other_text_is_refused_exactly_when_the_standard_library_refuses_it(text):
    def pairs_once(pairs):
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key given twice")
        return dict(pairs)

    def refuse(word):
        raise ValueError(word)

    try:
        expected = json.loads(text, object_pairs_hook=pairs_once, parse_constant=refuse)
    except ValueError:
        assert issues(text)
        return
    if "\\u" in text or "e" in text.lower():  # half a surrogate pair and 1e999 are JSON, and refused
        with suppress(DefinitionError):
            parse_source(text)
    else:
        assert parse_source(text).data == expected


TEXT = '{\n  "a": {"b/c": [1,\n      {"ü": "x"}]},\n\t"d": null\n}'


@pytest.mark.parametrize(
    ("pointer", "place", "key"),
    [
        ("", (1, 1), (1, 1)),
        ("/a", (2, 8), (2, 3)),
        ("/a/b~1c", (2, 16), (2, 9)),
        ("/a/b~1c/0", (2, 17), (2, 17)),
        ("/a/b~1c/1", (3, 7), (3, 7)),
        ("/a/b~1c/1/ü", (3, 13), (3, 8)),
        ("/d", (4, 7), (4, 2)),
        ("/a/b~1c/9/z", (2, 16), (2, 16)),
        ("/nope", (1, 1), (1, 1)),
    ],
)
def test_every_value_and_key_has_its_place(pointer, place, key):
    source = parse_source(TEXT)
    assert source.place(pointer) == place
    assert source.key_place(pointer) == key


def test_an_error_is_placed_at_its_value_and_an_unknown_key_at_the_key():
    source = parse_source(TEXT, file="f.json")
    placed = source.locate(Issue(pointer="/a/b~1c/0", message="wrong"))
    assert (placed.file, placed.line, placed.column) == ("f.json", 2, 17)
    assert source.locate(Issue(pointer="/d", message="unknown key 'd'")).column == 2
    assert source.locate(placed) is placed


def test_a_three_quoted_prompt_keeps_its_line_breaks_and_quotes_and_reads_no_escapes():
    text = '{"plain": {"mySystemPromptText": """\r\nSay "hi".\r\n\\n stays, ${too}\r\n""", "n": 1}}'
    source = parse_source(text)
    assert source.data["plain"] == {"mySystemPromptText": 'Say "hi".\n\\n stays, ${too}', "n": 1}
    assert source.place("/plain/n") == (4, 11)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('"""x"""', "x"),
        ('"""\nx"""', "x"),
        ('"""\n\nx\n\n"""', "\nx\n"),
        ('"""\n  x\n  """', "  x\n  "),
        ('""""""', ""),
        ('"""\n"""', ""),
        ('""', ""),
        ('"a\\nb"', "a\nb"),
    ],
)
def test_one_line_break_at_each_end_of_a_three_quoted_prompt_is_layout(written, expected):
    assert parse_source('{"SYSTEMPROMPT": ' + written + "}").data == {"SYSTEMPROMPT": expected}


def test_lines_after_a_three_quoted_prompt_are_counted_rightly():
    (issue,) = issues('{"systemPrompt": """\na\nb\n""",\n "x": nope}')
    assert (issue.line, issue.pointer) == (5, "/x")


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ('{"a": 1, "a": 2}', (1, 10), "key 'a' is given twice", "line 1, column 2"),
        ('{"a": [1, 2,]}', (1, 12), "unexpected comma before ']'", "remove the comma"),
        ('{"a": 1,}', (1, 8), "unexpected comma before '}'", "remove the comma"),
        ('{"a": 1 "b": 2}', (1, 9), "expected ',' or '}'", "put a comma"),
        ('{"a": Infinity}', (1, 7), "Infinity is not a JSON number", "null"),
        ('{"a": 1e999}', (1, 7), "too large", None),
        ('{"a": 012}', (1, 7), "'012' is not a JSON number", "leading zero"),
        ('{"a": +1}', (1, 7), "'+1' is not a JSON number", "plus"),
        ('{"a": .5}', (1, 7), "'.5' is not a JSON number", "point"),
        ('{"a": None}', (1, 7), "None is not JSON", "write null"),
        ('{"a": yes}', (1, 7), "'yes' is not a JSON value", '"yes"'),
        ('{"a": "\\x41"}', (1, 8), "\\x is not an escape sequence", "\\\\x"),
        ('{"a": "\\u12g4"}', (1, 8), "is not an escape sequence", "four hexadecimal"),
        ('{"a": "\\ud83d"}', (1, 8), "half of a surrogate pair", "both halves"),
        ('{"a": "x\ty"}', (1, 9), "control character", "\\u0009"),
        ('{"a": "x\ny"}', (1, 9), "a line break inside text", "\\n"),
        ('{"a": "x', (1, 7), "without its closing", "quotation mark"),
        ("{'a': 1}", (1, 2), "double quotation marks", '"key"'),
        ("{a: 1}", (1, 2), "double quotation marks", '"key"'),
        ("{\"a\": 'x'}", (1, 7), "double quotation marks", '"…"'),
        ('{"a" 1}', (1, 6), "expected ':'", None),
        ('{"a": 1', (1, 8), "ends inside an object", "close"),
        ("[1", (1, 3), "ends inside a list", "close"),
        ("", (1, 1), "empty", "one JSON object"),
        ("{} {}", (1, 4), "after the end", "remove"),
        ('{/* x */ "a": 1}', (1, 2), "no comments", "description"),
        ('{"prompt": """\nx\n"""}', (1, 12), "three-quoted text is not allowed", "systemPrompt"),
        ('{"systemPrompt": """x}', (1, 18), "without its end", '"""'),
        ("[" * 200, (1, 101), "nested deeper than 100", "flatten"),
    ],
)
def test_an_error_of_the_text_has_its_place_and_the_next_step(text, place, message, hint):
    (issue,) = issues(text)
    assert (issue.line, issue.column) == place
    assert message in issue.message
    assert hint is None or hint in (issue.hint or "")
    assert issue.file == "f.json"


def test_all_errors_that_can_be_gone_past_are_reported_at_once():
    found = issues('{"a": NaN, "a": 2,\n "b": [1 2], // no\n "c": "\\q",}')
    assert [(issue.line, issue.column) for issue in found] == [(1, 7), (1, 12), (2, 10), (2, 14), (3, 8), (3, 11)]


def test_readable_data_may_be_had_with_its_errors():
    source = parse_source('{"a": 1, "a": 2,}', strict=False)
    assert source.data == {"a": 1}
    assert len(source.errors) == 2
    with pytest.raises(DefinitionError):
        parse_source('{"a": ', strict=False)


def test_a_byte_order_mark_is_tolerated_and_bad_utf8_is_an_error_with_its_place(tmp_path: Path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(b"\xef\xbb\xbf" + '{"a": "ü"}'.encode())
    bad.write_bytes('{\n "ü": "'.encode() + b'\xff"}')
    assert read_source(good).data == {"a": "ü"}
    assert parse_source('\ufeff{"a": 1}').data == {"a": 1}
    with pytest.raises(DefinitionError) as caught:
        read_source(bad)
    (issue,) = caught.value.errors
    assert (issue.line, issue.column, issue.file) == (2, 8, str(bad))
    assert "0xff" in issue.message


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_can_not_be_read_is_an_error(tmp_path: Path, name: str):
    with pytest.raises(DefinitionError, match="can't be read"):
        read_source(tmp_path / name)


def test_a_large_text_is_read_whole():
    data = {f"k{i}": {"text": "é" * 20, "list": [1, 2.5, None, True, {"x": "\n"}]} for i in range(1_000)}
    text = json.dumps(data, indent=1, ensure_ascii=False)
    assert len(text) > 100_000
    source = parse_source(text)
    assert source.data == data
    line, column = source.place("/k999/list/4/x") or (0, 0)
    assert text.splitlines()[line - 1][column - 1 :] == '"\\n"'
