"""Twenty conversations, for everybody who compares what is sent to a provider: questions, tool loops, options, parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graphflow.content import FilePart, ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.options import ChatOptions, OneTool, ToolSpec

WEATHER = ToolSpec(
    name="weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
STRICT = ToolSpec(name="time", parameters={**WEATHER.parameters, "additionalProperties": False})
BARE = ToolSpec(name="ping")
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
BE_SHORT, ASK = SystemMessage(content="Be short."), HumanMessage(content="Weather in Paris?")
PICTURE = ImagePart(data=b"\x89PNG", media_type="image/png")


def called(*ids: str, text: str = "") -> AIMessage:
    return AIMessage(
        content=text, tool_calls=tuple(ToolCall(id=i, name="weather", arguments='{"city":"Paris"}') for i in ids)
    )


def result(call_id: str, content: Any = "21°C") -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, name="weather", content=content)


@dataclass(frozen=True)
class Conversation:
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ChatOptions = field(default_factory=ChatOptions)


CONVERSATIONS: dict[str, Conversation] = {
    "a question": Conversation((ASK,)),
    "instructions": Conversation((BE_SHORT, ASK)),
    "two instructions": Conversation((BE_SHORT, SystemMessage(content="In French."), ASK)),
    "instructions in the middle": Conversation((ASK, AIMessage(content="Sunny."), BE_SHORT, HumanMessage(content="And Rome?"))),
    "several turns": Conversation((BE_SHORT, ASK, AIMessage(content="Sunny."), HumanMessage(content="And Rome?"))),
    "characters of all kinds": Conversation((HumanMessage(content='北京 🌧 "quoted" \\ \n\t <b> \u2028 é'),)),
    "a tool": Conversation((ASK,), (WEATHER,)),
    "several tools": Conversation((ASK,), (WEATHER, STRICT, BARE)),
    "a call and its result": Conversation((ASK, called("call_1"), result("call_1")), (WEATHER,)),
    "text before a call": Conversation((ASK, called("call_1", text="I look."), result("call_1")), (WEATHER,)),
    "parallel calls": Conversation((ASK, called("call_1", "call_2"), result("call_1"), result("call_2")), (WEATHER,)),
    "two rounds of calls": Conversation((ASK, called("call_1"), result("call_1"), called("call_2"), result("call_2")), (WEATHER,)),
    "an answer after calls": Conversation(
        (ASK, called("call_1"), result("call_1"), AIMessage(content="Sunny."), HumanMessage(content="And Rome?")), (WEATHER,)
    ),
    "an empty result": Conversation((ASK, called("call_1"), result("call_1", "")), (WEATHER,)),
    "a forced tool": Conversation((ASK,), (WEATHER, BARE), ChatOptions(tool_choice=OneTool("weather"))),
    "any tool, one at a time": Conversation((ASK,), (WEATHER,), ChatOptions(tool_choice="required", parallel_tool_calls=False)),
    "sampling": Conversation((ASK,), (), ChatOptions(temperature=0.5, top_p=0.9, max_tokens=100)),
    "a schema": Conversation((HumanMessage(content="Score the sea."),), (), ChatOptions(schema=SCHEMA)),
    "a picture and a file": Conversation(
        (HumanMessage(content=(TextPart(text="What?"), PICTURE, FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"))),)
    ),
    "a picture as a result": Conversation(
        (ASK, called("call_1"), result("call_1", (TextPart(text="seen"), ImagePart(url="https://example.org/a.png")))), (WEATHER,)
    ),
}  # fmt: skip
assert len(CONVERSATIONS) == 20
