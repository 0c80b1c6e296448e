"""The incremental reader behind `output: REASONING_SUMMARY` (spec 1.3): every split gives the same, at once, and loses nothing."""

from __future__ import annotations

import codecs
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow.graph.engine.light_event import DONE, MaybeReady
from graphflow.nodes.delta_emitter import DeltaEmitter
from graphflow.nodes.reasoning_summary import Field, SummaryReader

Said = dict[str, str]
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault."""


def said(parts: list[str]) -> Said:
    """What both fields come to, and that no piece of the answer gave two texts for one of them."""
    reader = SummaryReader()
    out: dict[str, str] = {"reasoningSummary": "", "finalText": ""}
    for pieces in [*map(reader.feed, parts), reader.end()]:
        fields: list[Field] = [field for field, _ in pieces]
        assert len(fields) == len(set(fields))
        for field, text in pieces:
            assert text
            out[field] += text
    return out


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


# --- JSON as models write it ------------------------------------------------------------------------------------------

_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@st.composite
def written_string(draw: st.DrawFn) -> str:
    """A JSON string, each character in any of its spellings; half surrogates too."""
    units = st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('"\\/\b\f\n\r\t😀𝄞中é{}[]:,`'),
        st.integers(0xD800, 0xDFFF).map(chr),
    )
    out = []
    for char in draw(st.lists(units, max_size=12)):
        units16 = char.encode("utf-16-be", "surrogatepass")
        escaped = "".join(f"\\u{int.from_bytes(units16[i : i + 2]):04x}" for i in range(0, len(units16), 2))
        if draw(st.booleans()):
            escaped = escaped.replace("a", "A").replace("d", "D")
        spellings = [escaped, *([_SHORT[char]] if char in _SHORT else [])]
        if char not in '"\\' and char >= " " and not "\ud800" <= char <= "\udfff":
            spellings.append(char)
        out.append(draw(st.sampled_from(spellings)))
    return '"' + "".join(out) + '"'


_space = st.sampled_from(["", " ", "\n", "\t ", "\r\n  "])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("finalText"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An answer in the form that was asked for, with all that models put around and into it; and what it says."""
    members = [('"finalText"', draw(written_string()))]
    if draw(st.booleans()):
        members.append(
            (draw(st.sampled_from(['"reasoningSummary"', '"reasoning\\u0053ummary"'])), draw(written_string()))
        )
    for name in draw(st.lists(st.text(max_size=4), max_size=2, unique=True)):
        members.append((json.dumps(name), json.dumps(draw(_json), ensure_ascii=draw(st.booleans()))))
    s = lambda: draw(_space)  # noqa: E731 - short, and used in one line
    body = ",".join(f"{s()}{name}{s()}:{s()}{value}{s()}" for name, value in draw(st.permutations(members)))
    text = s() + "{" + body + "}" + s()
    fence = draw(st.sampled_from(["", "```json\n", "```\n", "``` JSON \n", "```{"]))
    value = json.loads(text.strip())
    if fence == "```{":
        return "```" + text.lstrip() + "```", value
    return (f"{fence}{text}\n```\n" if fence else text), value


def whole(text: str) -> str:
    """Half surrogates that stay alone can't be sent."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


@patiently
@given(answers(), st.lists(st.integers(0, 10_000), max_size=12))
def test_for_every_split_the_texts_are_those_of_a_json_parser(answer, places):
    text, value = answer
    expected = {"reasoningSummary": whole(value.get("reasoningSummary", "")), "finalText": whole(value["finalText"])}
    assert said(cut(text, places)) == expected
    assert said(list(text)) == expected


@patiently
@given(answers(), st.lists(st.integers(0, 10_000), max_size=12))
def test_for_every_split_of_its_bytes_the_texts_are_the_same(answer, places):
    data, decoder = answer[0].encode(), codecs.getincrementaldecoder("utf-8")()
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parts = [decoder.decode(data[a:b]) for a, b in pairwise(edges)]
    assert said(parts) == said([answer[0]])


@patiently
@given(st.text() | st.text(alphabet='{}[]":,\\`u0d8 \nnulltrefi1-J'), st.lists(st.integers(0, 10_000), max_size=8))
def test_for_every_split_of_anything_the_texts_are_the_same(text, places):
    assert said(cut(text, places)) == said([text]) == said(list(text))


@patiently
@given(written_string())
def test_nothing_is_held_back_that_can_be_known(string):
    """Behind each character all that no later one can change has been said: all but an escape that is not whole, and
    the first half of a pair whose second may follow."""
    reader, told = SummaryReader(), ""
    reader.feed('{"finalText": "')
    body = string[1:-1]
    for number in range(1, len(body) + 1):
        told += "".join(text for _, text in reader.feed(body[number - 1]))
        sure = _without_open_end(body[:number])
        assert told == whole(json.loads(f'"{sure}"')) + _half_that_is_alone(body[len(sure) : number])


def _without_open_end(body: str) -> str:
    """The string's text up to an escape at its end that is not whole, with the half before it."""
    units = re.findall(r'\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}$|\\["\\/bfnrt]|\\$|[^\\]', body)
    if units and re.fullmatch(r"\\(u[0-9a-fA-F]{0,3})?", units[-1]):
        units.pop()
    if units and re.fullmatch(r"\\u[dD][89abAB][0-9a-fA-F]{2}", units[-1]):
        units.pop()
    return "".join(units)


def _half_that_is_alone(end: str) -> str:
    """A first half is known to be alone as soon as what follows can't be a second one."""
    follows = re.fullmatch(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u([0-9a-fA-F]+)", end)
    return "\ufffd" if follows and not re.match(r"[dD]([c-fC-F]|$)", follows[1]) else ""


# --- what is not that form --------------------------------------------------------------------------------------------


@patiently
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="{`")), st.lists(st.integers(0, 99), max_size=4)
)
def test_prose_is_the_answer_as_it_stands(text, places):
    assert said(cut(text, places)) == {"reasoningSummary": "", "finalText": text}


@pytest.mark.parametrize(
    ("parts", "at"),
    [
        (["H", "ello"], 0),
        (["  ", "\n", "Hello"], 2),
        (["{", "name} is a placeholder"], 1),
        (['{"', 'finalText"', " is a field"], 2),
        (['{"a":', " x"], 1),
        (["```", "py", "thon\nprint()"], 1),
        (["```j", "s\n1"], 1),
        (["``", "x``"], 1),
        (["[1", "]"], 0),
        (['"', 'quoted"'], 0),
    ],
)
def test_prose_comes_through_as_soon_as_it_can_not_be_the_form(parts, at):
    reader = SummaryReader()
    pieces = [reader.feed(part) for part in parts]
    assert pieces[:at] == [[]] * at
    assert pieces[at] == [("finalText", "".join(parts[: at + 1]))]
    assert pieces[at + 1 :] == [[("finalText", part)] for part in parts[at + 1 :]]


TABLE: list[tuple[str, str, str, str]] = [
    ("no final text: the summary is all there is", '{"reasoningSummary": "Because."}', "Because.", "Because."),
    ("no final text, other members: the raw text", '{"answer": 42}', "", '{"answer": 42}'),
    ("no field at all", "{}", "", "{}"),
    ("null is as good as missing", '{"reasoningSummary": "Why.", "finalText": null}', "Why.", "Why."),
    ("both null", '{"finalText": null}', "", '{"finalText": null}'),
    ("an empty text is an answer", '{"reasoningSummary": "Why.", "finalText": ""}', "Why.", ""),
    ("no summary", '{"finalText": "Yes."}', "", "Yes."),
    ("a number", '{"finalText": 42, "reasoningSummary": "Why."}', "Why.", "42"),
    ("a word", '{"finalText": true}', "", "true"),
    ("an object", '{"finalText": {"a": "}"}}', "", '{"a": "}"}'),
    ("a list for a summary", '{"reasoningSummary": ["a", "b]"], "finalText": "x"}', '["a", "b]"]', "x"),
    ("a field twice", '{"finalText": "one", "finalText": " two"}', "", "one two"),
    ("a member with the field inside", '{"x": {"finalText": "no"}, "finalText": "yes"}', "", "yes"),
    ("a comma too many", '{"finalText": "yes",}', "", "yes"),
    ("a raw line break in a string", '{"finalText": "a\nb"}', "", "a\nb"),
    ("an escape that JSON does not know", '{"finalText": "C:\\dir \\x \\u12"}', "", "C:\\dir \\x \\u12"),
    ("an unescaped quote", '{"finalText": "say "hi" now"}', "", 'say "hi" now"}'),
    ("text behind the object", '{"finalText": "yes"}\n\nBye.', "", "yes\n\nBye."),
    ("text behind a fence", '```json\n{"finalText": "yes"}\n```\nBye.', "", "yes\n```\nBye."),
    ("an object in a fence without the fields", '```json\n{"a": 1}\n```', "", '```json\n{"a": 1}\n```'),
    ("cut in the text", '{"reasoningSummary": "Why.", "finalText": "Ye', "Why.", "Ye"),
    ("cut in an escape", '{"finalText": "a\\u00', "", "a\ufffd"),
    ("cut in a pair", '{"finalText": "a\\ud83d\\ud', "", "a\ufffd"),
    ("cut in the summary", '{"reasoningSummary": "I thi', "I thi", "I thi"),
    ("cut in a name", '{"final', "", '{"final'),
    ("cut in a word", '{"finalText": nul', "", "nul"),
    ("cut in a number", '{"finalText": 1', "", "1"),
    ("cut behind the summary", '{"reasoningSummary": "Why.", ', "Why.", "Why."),
    ("broken behind the summary", '{"reasoningSummary": "Why.", and so on', "Why.", '", and so on'),
    ("nothing but white space", " \n", "", " \n"),
    ("nothing", "", "", ""),
]


@pytest.mark.parametrize(("text", "reasoning", "final"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_no_text_is_lost_in_other_forms(text, reasoning, final):
    assert said([text]) == {"reasoningSummary": reasoning, "finalText": final}
    assert said(list(text)) == {"reasoningSummary": reasoning, "finalText": final}


@pytest.mark.parametrize(
    "text",
    [
        '{"finalText": ' + "1" * 100_000 + "}",
        '{"' + "a" * 100_000 + '": 1}',
        '{"finalText": "a"' + " " * 100_000 + "}",
        '{"finalText": [' + '"a",' * 30_000 + "1]}",
    ],
)
def test_long_members_are_read_the_same_in_one_piece_and_in_many(text: str) -> None:
    assert said([text]) == said([text[at : at + 3] for at in range(0, len(text), 3)])


@pytest.mark.parametrize("space", ["\n", " ", " \n", "\r\t"])
def test_white_space_around_the_object_is_read_in_one_pass(space):
    """One pass takes a part of a second; matching the whole run again for each character takes most of a minute."""
    run = space * (100_000 // len(space))
    text = "```json" + run + '{"finalText": "x"}' + run + "```" + run
    reader = SummaryReader()
    assert reader.feed(text) + reader.end() == [("finalText", "x")]


# --- the reader of the run --------------------------------------------------------------------------------------------


class _SlowReader:
    """A node run whose reader has fallen behind with the reasoning."""

    def __init__(self) -> None:
        self.waited = 0

    def reasoning(self, delta: str) -> MaybeReady:
        return MaybeReady(self._wait)

    def content(self, delta: str) -> MaybeReady:
        return DONE

    async def _wait(self) -> None:
        self.waited += 1


async def test_a_piece_with_both_fields_waits_for_a_reader_that_is_behind_with_one_of_them() -> None:
    ctx: Any = _SlowReader()
    emitter = DeltaEmitter(ctx, "content", show_reasoning=True, summary=True)
    await emitter.say('{"reasoningSummary": "why", "finalText": "so"}')
    assert ctx.waited == 1
