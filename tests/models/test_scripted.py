"""The scripted model: what the embedded script answers, and how scripts are written."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatOptions, OneTool, TextDelta, ToolCallDelta, ToolSpec, complete
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.player import answer
from graphflow.models.scripted.script import Script, ScriptError, ScriptTurn, default_script, load_script, parse_script
from graphflow.nodes.prompts import BEST_ANSWER, CHECK
from tests.models.turns import ASK, hear


def offer(name: str, *properties: str) -> ToolSpec:
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in properties}, "required": list(properties)}
    return ToolSpec(name=name, parameters=schema)


DEMO = (offer("city_datetime", "city"), offer("mock_city_weather", "city", "date"), offer("bash", "command"))
NOW = {"date": "2026-11-30", "time": "10:00:00", "timezone": "Asia/Shanghai"}
SKY = {"temperatureC": 12, "humidity": 40, "windLevel": 3, "condition": "晴"}
RESULTS: dict[str, dict[str, Any]] = {
    "city_datetime": NOW,
    "mock_city_weather": SKY,
    "bash": {"stdout": "a.txt\nb.txt\n"},
}


async def play(
    question: str, tools: Sequence[ToolSpec] = DEMO, options: ChatOptions | None = None
) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """The calls of a whole tool loop, one per turn, and the answer."""
    model = ScriptedModel()
    made: list[tuple[str, dict[str, Any]]] = []
    messages: list[Message] = [SystemMessage(content="Use tools."), HumanMessage(content=question)]
    for _ in range(20):
        said = (await complete(model, messages, tools, options)).message
        messages.append(said)
        if not said.tool_calls:
            return made, said.text
        assert len(said.tool_calls) == 1, "one tool per turn"
        call = said.tool_calls[0]
        arguments = json.loads(call.arguments)
        made.append((call.name, arguments))
        result = {**arguments, **RESULTS.get(call.name, {"ok": True})}
        messages.append(ToolMessage(tool_call_id=call.id, content=json.dumps(result, ensure_ascii=False)))
    raise AssertionError(f"no end: {made}")


# --- the embedded script -------------------------------------------------------------------------


COMMANDS: list[tuple[str, str, Any]] = [
    ('Call bash {"command": "ls"}', "bash", {"command": "ls"}),
    ('Call bash {"command": "echo {a} }"} and say {what} you see}', "bash", {"command": "echo {a} }"}),
    ('Please call `bash` with: {"command": "ls"}', "bash", {"command": "ls"}),
    ('call bash: {"command": "a\\n\\u00e9", "more": [{"x": {"y": [1, 2.5, null]}}]}', "bash", None),
    ('Call bash {"command": "how is the weather, city_datetime?"}', "bash", None),
    ("Call bash {}", "bash", {}),
    ('Call bash\n{\n  "command": "ls"\n}\nThen call city_datetime {"city": "x"}', "bash", {"command": "ls"}),
    ('Call bash {"id": 123456789012345678901234567890}', "bash", {"id": 123456789012345678901234567890}),
]


@pytest.mark.parametrize(("said", "name", "arguments"), COMMANDS)
async def test_a_command_calls_its_tool_with_just_the_json_that_follows(said: str, name: str, arguments: Any) -> None:
    done = await complete(ScriptedModel(), [HumanMessage(content=said)], DEMO)
    (call,) = done.message.tool_calls
    expected = json.loads(said[said.index("{") :]) if arguments is None else arguments
    assert (call.name, json.loads(call.arguments)) == (name, expected)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.text(max_size=20),
)
def test_any_json_after_a_command_arrives_as_it_is(value: Any, after: str) -> None:
    said = f"Call bash {json.dumps({'command': value})} {after}"
    (call,) = answer(default_script(), [HumanMessage(content=said)], DEMO, ChatOptions()).tool_calls
    given = call.arguments if isinstance(call.arguments, dict) else json.loads(call.arguments)
    assert (call.name, given) == ("bash", {"command": value})


@pytest.mark.parametrize("broken", ['{"command": "ls"', "{command: ls}", '{"command": NaN}', '["ls"]'])
async def test_broken_json_is_passed_on_for_the_tool_to_refuse(broken: str) -> None:
    done = await complete(ScriptedModel(), [HumanMessage(content=f"Call bash {broken}")], DEMO)
    assert [(call.name, call.arguments) for call in done.message.tool_calls] == [("bash", broken)]


async def test_a_command_for_a_tool_that_is_not_offered_calls_nothing() -> None:
    done = await complete(ScriptedModel(), [HumanMessage(content='Call read {"path": "x"}')], DEMO)
    assert done.message.tool_calls == ()


async def test_weather_in_chinese_asks_for_the_date_and_then_the_weather_of_each_city() -> None:
    calls, text = await play("北京和上海明天天气怎么样?")
    assert calls == [
        ("city_datetime", {"city": "北京"}),
        ("mock_city_weather", {"city": "北京", "date": "2026-12-01"}),
        ("city_datetime", {"city": "上海"}),
        ("mock_city_weather", {"city": "上海", "date": "2026-12-01"}),
    ]
    assert "北京 2026-12-01:晴,12°C" in text
    assert "上海 2026-12-01:晴,12°C" in text


async def test_weather_in_english_is_answered_in_english() -> None:
    calls, text = await play("What's the weather in Tokyo the day after tomorrow, and in Beijing?")
    assert [arguments["city"] for name, arguments in calls if name == "mock_city_weather"] == ["Tokyo", "Beijing"]
    assert "Tokyo, 2026-12-02: 晴, 12°C, humidity 40%" in text


@pytest.mark.parametrize(
    ("question", "city"),
    [("今天会下雨吗", "上海"), ("Weather today?", "Shanghai"), ("Will it rain in Port Louis?", "Port Louis")],
)
async def test_a_city_that_is_unknown_or_not_named_is_taken_as_it_is_said(question: str, city: str) -> None:
    calls, _ = await play(question)
    assert [arguments["city"] for _, arguments in calls] == [city, city]


@pytest.mark.parametrize(
    ("question", "command"),
    [
        ("列出当前目录的文件", "ls"),
        ("list the files here", "ls"),
        ("磁盘还剩多少?", "df -h"),
        ("how full is the disk?", "df -h"),
        ("show me the file README.md", "cat README.md"),
        ("看一下文件 docs/a-b.txt", "cat docs/a-b.txt"),
        ("which directory is this?", "pwd"),
        ("内存够吗", "free"),
    ],
)
async def test_questions_about_this_machine_go_to_bash(question: str, command: str) -> None:
    calls, text = await play(question)
    assert calls == [("bash", {"command": command})]
    assert "a.txt\nb.txt" in text


async def test_a_question_of_two_sorts_is_answered_in_both() -> None:
    calls, text = await play("北京天气如何?再列出文件")
    assert [name for name, _ in calls] == ["city_datetime", "mock_city_weather", "bash"]
    assert "晴" in text
    assert "a.txt" in text


async def test_a_rejected_or_edited_call_is_not_made_again_and_its_result_is_told() -> None:
    messages: list[Message] = [HumanMessage(content="列出文件")]
    said = (await complete(ScriptedModel(), messages, DEMO)).message
    result = ToolMessage(tool_call_id=said.tool_calls[0].id, content="rejected: not today", error=True)
    done = await complete(ScriptedModel(), [*messages, said, result], DEMO)
    assert done.message.tool_calls == ()
    assert "rejected: not today" in done.message.content


async def test_a_new_question_begins_anew() -> None:
    messages: list[Message] = [HumanMessage(content="列出文件")]
    said = (await complete(ScriptedModel(), messages, DEMO)).message
    messages += [said, ToolMessage(tool_call_id=said.tool_calls[0].id, content="x"), AIMessage(content="x")]
    again = (await complete(ScriptedModel(), [*messages, HumanMessage(content="再列出一次文件")], DEMO)).message
    assert again.tool_calls[0].name == "bash"
    assert again.tool_calls[0].id != said.tool_calls[0].id


async def test_without_tools_it_answers_at_once() -> None:
    calls, text = await play("北京天气怎么样?", tools=())
    assert calls == []
    assert "北京" in text


async def test_at_the_round_limit_it_answers_with_what_it_has() -> None:
    messages: list[Message] = [HumanMessage(content="北京和上海的天气?")]
    for _ in range(2):
        said = (await complete(ScriptedModel(), messages, DEMO)).message
        call = said.tool_calls[0]
        result = {**json.loads(call.arguments), **RESULTS[call.name]}
        messages += [said, ToolMessage(tool_call_id=call.id, content=json.dumps(result, ensure_ascii=False))]
    done = await complete(ScriptedModel(), messages)
    assert done.finish_reason == "stop"
    assert "北京 2026-11-30:晴" in done.message.content


async def test_task_done_is_called_when_asked_for() -> None:
    calls, _ = await play("[task_done]", tools=[offer("task_done", "finishContent")])
    assert calls == [("task_done", {"finishContent": "[task_done]"})]


async def test_a_tool_that_the_user_names_is_called_with_the_json_beside_it() -> None:
    calls, text = await play(
        'please use math_eval with {"expression": "1+1"}', tools=[offer("math_eval", "expression")]
    )
    assert calls == [("math_eval", {"expression": "1+1"})]
    assert '"ok": true' in text


@pytest.mark.parametrize("choice", ["required", OneTool("bash")])
async def test_a_forced_tool_is_called(choice: Any) -> None:
    done = await complete(ScriptedModel(), ASK, DEMO, ChatOptions(tool_choice=choice))
    assert len(done.message.tool_calls) == 1
    if isinstance(choice, OneTool):
        assert done.message.tool_calls[0].name == "bash"


async def test_no_tool_is_called_where_the_choice_is_none() -> None:
    done = await complete(ScriptedModel(), [HumanMessage(content="列出文件")], DEMO, ChatOptions(tool_choice="none"))
    assert done.message.tool_calls == ()


async def test_anything_else_gets_a_friendly_answer_that_takes_up_the_topic() -> None:
    assert "写一首关于秋天的诗" in (await play("写一首关于秋天的诗"))[1]
    assert "a joke about cats" in (await play("tell me a joke about cats"))[1]


@pytest.mark.parametrize(
    "part",
    [
        True,
        {"enum": 5},
        {"anyOf": [True]},
        {"type": []},
        {"type": 5},
        {"type": "array", "items": True},
        {"properties": 5},
    ],
)
async def test_a_tool_whose_schema_says_little_is_called_all_the_same(part: Any) -> None:
    """`true` is a JSON Schema too, and tools of others need not be well made."""
    tool = ToolSpec(name="f", parameters={"type": "object", "properties": {"a": part}, "required": ["a"]})
    (name, arguments), *_ = (await play("hello", [tool], ChatOptions(tool_choice="required")))[0]
    assert (name, list(arguments)) == ("f", ["a"])


async def test_a_schema_is_kept_to() -> None:
    schema = {
        "type": "object",
        "properties": {
            "finalText": {"type": "string"},
            "score": {"type": "integer"},
            "tags": {"type": "array"},
            "kind": {"enum": ["a"]},
        },
    }
    value = json.loads((await play("tell me a joke", options=ChatOptions(schema=schema)))[1])
    assert "a joke" in value["finalText"]
    assert (value["score"], len(value["tags"]), value["kind"]) == (1, 1, "a")


async def test_the_same_request_gives_the_same_deltas_in_any_process() -> None:
    first, second = [await hear(ScriptedModel(), [HumanMessage(content="北京天气?")], DEMO) for _ in range(2)]
    assert first.deltas == second.deltas
    assert first.call_deltas[0].id == "call_55af6fc0a2_0", "made from the messages, nothing else"


async def test_deltas_are_small() -> None:
    heard = await hear(ScriptedModel(), [HumanMessage(content="hello")])
    assert len(heard.texts) > 20
    assert max(map(len, heard.texts)) <= 14


# --- scripts -------------------------------------------------------------------------------------


async def test_turns_are_played_in_order_and_then_the_rules() -> None:
    script = parse_script(
        [
            {"text": "one"},
            {"match": "b(?P<rest>.*)", "turn": {"text": "rule: {rest}"}},
            {"text": "two", "reasoning": "hm"},
        ]
    )
    messages: list[Message] = [HumanMessage(content="bye")]
    model, said = ScriptedModel(script), []
    for _ in range(3):
        message = (await complete(model, messages)).message
        messages += [message, HumanMessage(content="bye")]
        said.append(message.content)
    assert said == ["one", "two", "rule: ye"]


async def test_a_script_file_is_played(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"turns": [{"text": {"zh": "你好", "en": "hello"}, "piece": 1}]}', encoding="utf-8")
    model = ScriptedModel.from_file(file, model="mine")
    assert (await hear(model)).texts == list("hello")
    assert (await complete(model, [HumanMessage(content="早")])).message.content == "你好"
    assert model.model == "mine"


async def test_calls_may_have_ids_raw_arguments_and_another_finish() -> None:
    turn = {"tool_calls": [{"name": "f", "arguments": "{broken", "id": "x"}], "finish": "length"}
    heard = await hear(ScriptedModel(parse_script({"turns": [turn]})))
    assert heard.calls == [("x", "f", "{broken")]
    assert heard.finish.reason == "length"


async def test_a_pause_before_each_delta_is_taken_where_one_is_set() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    turns = Script(turns=(ScriptTurn(text="ab", piece=1), ScriptTurn(text="ab", piece=1, delay_ms=5)))
    model = ScriptedModel(turns, delay_s=0.5, sleep=sleep)
    await complete(model, ASK)
    await complete(model, [*ASK, AIMessage(content="ab")])
    assert slept == [0.5, 0.5, 0.005, 0.005]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "malformed|truncated"),
        ('{"turn": []}', "turn"),
        ('{"turns": [{"texts": "x"}]}', "texts"),
        ('{"rules": [{"match": "("}]}', r"rules\[0\].*'\('"),
        ('{"rules": [{"match": "a", "each": "cities"}]}', r"rules\[0\].*'cities'"),
    ],
)
def test_a_wrong_script_is_refused_with_its_file_and_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScriptError, match=said) as caught:
        load_script(file)
    assert "script.json" in str(caught.value)


def test_a_script_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScriptError, match="no-such"):
        load_script("no-such.json")


async def test_errors_stalls_and_cuts_can_be_scripted() -> None:
    script = parse_script(
        [{"error": {"status": 429}}, {"text": "ab", "piece": 1, "cut": 1}, {"text": "a", "hang": True}]
    )
    messages: list[Message] = list(ASK)
    model, codes = ScriptedModel(script), []
    for _ in range(3):
        heard = await hear(model, messages, timeout_s=0.05)
        codes.append(heard.failure.code)
        messages += [AIMessage(content="x")]
    assert codes == ["rate_limit", "connection", "timeout"]


async def test_an_error_says_that_it_is_scripted() -> None:
    model = ScriptedModel(Script(turns=(ScriptTurn(error=parse_error()),)))
    with pytest.raises(ModelError, match="maintenance"):
        await complete(model, ASK)


def parse_error() -> Any:
    return parse_script([{"error": {"status": 503, "message": "maintenance"}}]).turns[0].error


async def test_arguments_arrive_in_pieces() -> None:
    heard = await hear(ScriptedModel(), [HumanMessage(content="北京天气?")], DEMO)
    assert len([d for d in heard.deltas if isinstance(d, ToolCallDelta)]) > 2
    assert not [d for d in heard.deltas if isinstance(d, TextDelta)]


async def test_a_summary_asked_for_in_words_is_written_with_the_reasoning_in_it() -> None:
    system = SystemMessage(content='Answer as {"reasoningSummary": "…", "finalText": "…"}')
    message = (await complete(ScriptedModel(), [system, HumanMessage(content="hello")])).message
    said = json.loads(message.text)
    assert (list(said), message.reasoning) == (["reasoningSummary", "finalText"], "")
    assert said["finalText"].startswith("Hello!") and said["reasoningSummary"] == "The user says hello."


async def test_a_draft_that_is_to_be_checked_is_repeated_word_for_word() -> None:
    draft = "Weather {x} in Paris?\n</draft>\n1 < 2"
    assert (await play(CHECK.replace("{draft}", draft)))[1] == draft


async def test_a_forced_answer_is_one_to_the_question_with_what_the_tools_gave() -> None:
    call = ToolCall(id="c1", name="city_datetime", arguments='{"city": "Beijing"}')
    result = {"city": "Beijing", "date": "2026-02-13", "time": "09:00", "timezone": "Asia/Shanghai"}
    messages: list[Message] = [
        HumanMessage(content="What time is it in Beijing?"),
        AIMessage(tool_calls=(call,)),
        ToolMessage(tool_call_id="c1", content=json.dumps(result)),
        HumanMessage(content=BEST_ANSWER),
    ]
    said = (await complete(ScriptedModel(), messages)).message.content
    assert said == "Local time:\n\nBeijing: 2026-02-13 09:00 (Asia/Shanghai)"


async def test_half_a_character_in_a_message_is_answered() -> None:
    assert (await complete(ScriptedModel(), [HumanMessage(content="a\ud83d")])).finish_reason == "stop"


@pytest.mark.parametrize("filling", ["x", "lorem ipsum ", " ", "\n", "{", '{"a":', "call tool ", "说", "2026-01-", "'"])
async def test_of_a_long_message_both_ends_are_read(filling: str) -> None:
    """Nothing can interrupt a regular expression, and the script has dozens of them."""
    middle = filling * (2_000_000 // len(filling))
    begun = time.thread_time()
    at_the_beginning, _ = await play(f'Call bash {{"command": "ls"}} {middle}')
    at_the_end, _ = await play(f'{middle} Call bash {{"command": "pwd"}}')
    await play(middle, (offer("tool", "text"),), ChatOptions(tool_choice="required"))
    assert [*at_the_beginning, *at_the_end] == [("bash", {"command": "ls"}), ("bash", {"command": "pwd"})]
    assert time.thread_time() - begun < 1  # CPU time of a machine that may be slow; without a bound it is many seconds


async def test_the_arguments_of_a_command_are_taken_whole_however_long() -> None:
    command = "word " * 100_000
    calls, _ = await play(f"Call bash {json.dumps({'command': command})}")
    assert calls == [("bash", {"command": command})]
