"""What the scripted model answers to one request: a pure function of script, messages, tools and options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from itertools import islice
from typing import Any

import msgspec

from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolMessage
from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptRule, ScriptStep, ScriptTurn, Text

_VARIABLE = re.compile(r"\{(\w+)\}")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_SUMMARY = {"type": "object", "properties": {"reasoningSummary": {"type": "string"}, "finalText": {"type": "string"}}}
_SUMMARY_WITHOUT_REASONING: Text = {"zh": "根据目前知道的内容作答。", "en": "I answer from what is known so far."}
_QUOTE_CHARACTERS = 1500
_TOPIC_CHARACTERS = 200
_READ_CHARACTERS = 32 * 1024
"""Rules and commands are looked for in so many characters at either end of a message: nothing can interrupt a regular
expression, and a script has dozens of them."""
_MOST_BRACES = 64
"""Places at which an object may begin that are tried."""


def answer(script: Script, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions) -> ScriptTurn:
    """The turn that answers this request, its texts filled in and in the language of the user."""
    # The position in the script follows from the conversation, so the model keeps no state between calls.
    spoken = sum(isinstance(m, AIMessage) for m in messages)
    scene = _ScriptScene(script, messages, tools, options)
    if spoken < len(script.turns):
        return scene.say(script.turns[spoken])
    turn = scene.as_colleague() or scene.commanded() or scene.by_rules() or scene.plain()
    turn = scene.end_of_work(turn)
    # A call has no text to fit; the schema applies to the answer.
    return turn if turn.tool_calls else scene.fit_schema(turn)


class _ScriptTask(msgspec.Struct, frozen=True):
    """One call that a rule wants to be made."""

    rule: int
    item: str
    step: ScriptStep


class _ScriptScene:
    """One request, looked at."""

    def __init__(
        self, script: Script, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> None:
        said = [i for i, m in enumerate(messages) if isinstance(m, HumanMessage)]
        last = max((i for i in said if _is_question(messages[i])), default=-1)
        # What a colleague said after the person's question is a prompt; the question itself stays the topic.
        self._prompted = _ends(messages[said[-1]].text) if said and said[-1] != last else ""
        self._whole = messages[last].text if last >= 0 else ""
        self.asked = _ends(self._whole)
        self._script = script
        self._since = messages[last + 1 :]
        self._tools = {} if options.tool_choice == "none" else {tool.name: tool for tool in tools}
        self._choice = options.tool_choice
        self._schema = options.schema or (_SUMMARY if _asks_for_summary(messages) else None)
        self._language = _language_of(self.asked)
        topic = " ".join(self.asked.split())
        self._variables = {"topic": topic[:_TOPIC_CHARACTERS] + ("…" if len(topic) > _TOPIC_CHARACTERS else "")}

    # --- recorded turns --------------------------------------------------------------------------

    def say(self, turn: ScriptTurn, variables: Mapping[str, str] | None = None) -> ScriptTurn:
        known = {**self._variables, "results": "\n".join(self._quotes()), **(variables or {})}
        return msgspec.structs.replace(
            turn, text=self._fill(turn.text, known), reasoning=self._fill(turn.reasoning, known)
        )

    def plain(self) -> ScriptTurn:
        """For what no rule knows: a tool that the user names or that must be called, else plain words."""
        called = None if self._has_results() else self._invented_call(self._named_tool())
        called = called or self._forced_call()
        if called is not None:
            return called
        results = self._quotes()
        if results:
            heading = "结果如下:" if self._language == "zh" else "This is what I found:"
            return ScriptTurn(text="\n\n".join([heading, *results]))
        return self.say(self._script.otherwise)

    # --- agents of a team ------------------------------------------------------------------------

    def as_colleague(self) -> ScriptTurn | None:
        """What a recorded turn says to the colleague who asks; `None` when only the person's words matter."""
        if not self._prompted:
            return None
        rules = (r for r in self._script.rules if r.turn is not None and re.search(r.match, self._prompted))
        rule = next(rules, None)
        return None if rule is None or rule.turn is None else self.say(rule.turn)

    def end_of_work(self, turn: ScriptTurn) -> ScriptTurn:
        """With nothing left to call, an agent who can end the work of its team does so with its words."""
        if not self._prompted or turn.tool_calls or "task_done" not in self._tools:
            return turn
        return ScriptTurn(tool_calls=(ScriptedCall(name="task_done", arguments={"finishContent": str(turn.text)}),))

    # --- rules -----------------------------------------------------------------------------------

    def by_rules(self) -> ScriptTurn | None:
        """What the matching rules say; `None` when none matches."""
        rules = [r for r in self._script.rules if re.search(r.match, self.asked, re.IGNORECASE)]
        if not rules:
            return None
        if rules[0].turn is not None:
            known = self._known(rules[0])
            if groups := "".join(_groups(re.search(rules[0].match, self.asked, re.IGNORECASE)).values()):
                self._language = _language_of(groups)  # the rest is not the person's
            return self._forced_call() or self.say(rules[0].turn, known)
        rules = [r for r in rules if r.turn is None]
        tasks = self._tasks(rules)
        results = self._results(tasks)
        # A step whose tool isn't offered is skipped: the same rule serves agents with fewer tools.
        pending = next((i for i, t in enumerate(tasks) if i not in results and t.step.tool in self._tools), None)
        if pending is not None:
            return self._call(rules[tasks[pending].rule], tasks[pending], first=not results)
        if not results and (forced := self._forced_call()) is not None:
            return forced
        said = [self._conclusion(i, rule, tasks, results) for i, rule in enumerate(rules)]
        return ScriptTurn(text="\n\n".join(text for text in said if text))

    def _tasks(self, rules: Sequence[ScriptRule]) -> list[_ScriptTask]:
        """The calls of all rules in order, none twice."""
        # Two rules may ask for the same call; one result serves both.
        tasks: dict[tuple[str, str], _ScriptTask] = {}
        for position, rule in enumerate(rules):
            for item in self._items(rule):
                for step in rule.steps:
                    tasks.setdefault((step.tool, item), _ScriptTask(position, item, step))
        return list(tasks.values())

    def _results(self, tasks: Sequence[_ScriptTask]) -> dict[int, str]:
        """Position of a task → its result, from the calls made since the user spoke."""
        contents = {m.tool_call_id: m.text for m in self._since if isinstance(m, ToolMessage)}
        found: dict[int, str] = {}
        for call in (c for m in self._since if isinstance(m, AIMessage) for c in m.tool_calls):
            fitting = [i for i, t in enumerate(tasks) if t.step.tool == call.name and i not in found]
            # A person may have edited the arguments, so the item need not stand in them.
            exact = (i for i in fitting if tasks[i].item in call.arguments)
            position = next(exact, fitting[0] if fitting else None)
            if position is not None:
                found[position] = contents.get(call.id, "")
        return found

    def _call(self, rule: ScriptRule, task: _ScriptTask, *, first: bool) -> ScriptTurn:
        known = {**self._known(rule), "item": task.item, "date": self._date()}
        filled = {name: _fill(text, known) for name, text in task.step.arguments.items()}
        arguments = _fitting(self._tools[task.step.tool], filled, known["topic"])
        call = ScriptedCall(name=task.step.tool, arguments=arguments)
        return ScriptTurn(reasoning=self._fill(rule.reasoning, known) if first else "", tool_calls=(call,))

    def _conclusion(
        self, position: int, rule: ScriptRule, tasks: Sequence[_ScriptTask], results: Mapping[int, str]
    ) -> str:
        """What one rule says at the end."""
        own = [(tasks[i].step.tool, result) for i, result in sorted(results.items()) if tasks[i].rule == position]
        if not own:
            shared = not any(task.rule == position for task in tasks)  # an earlier rule did all of it
            return "" if shared else self._fill(rule.untold or self._script.otherwise.text, self._known(rule))
        last = rule.steps[-1].tool
        # Only the last step's results make the lines; earlier steps only prepared it.
        shown = [result for tool, result in own if tool == last] or [result for _, result in own]
        lines = [self._line(rule, result) for result in shown if result]
        return self._fill(rule.answer, {**self._known(rule), "results": "\n".join(lines)})

    def _known(self, rule: ScriptRule) -> dict[str, str]:
        """The rule's variables for this message."""
        found = re.search(rule.match, self.asked, re.IGNORECASE)
        known = {**self._variables, **_groups(found), "items": self._joined(self._items(rule))}
        for choice in rule.choose:
            found = re.search(choice.match, self.asked, re.IGNORECASE)
            if found is not None:
                groups = _groups(found)
                return known | {name: _fill(text, groups) for name, text in choice.set.items()}
        return known

    def _items(self, rule: ScriptRule) -> list[str]:
        """The values that the message names, in its order; `default` when it names none."""
        if rule.each is None:
            return [self._spoken(rule.default)]
        text = self.asked.lower()
        found = []
        for value, aliases in self._script.lists[rule.each].items():
            places = [place for alias in aliases if (place := text.find(alias.lower())) >= 0]
            if places:
                found.append((min(places), value))
        if found:
            return [value for _, value in sorted(found)]
        named = re.search(rule.pattern, self.asked) if rule.pattern else None
        return [named[1] if named is not None else self._spoken(rule.default)]

    def _date(self) -> str:
        """The day that the message speaks of, counted from the latest date in a result."""
        text = self.asked.lower()
        # Longest first: a longer word may contain a shorter one (`day after tomorrow`, `tomorrow`).
        words = sorted(self._script.days, key=len, reverse=True)
        word = next((w for w in words if w in text), None)
        # From the results and not the clock, so that a script gives the same arguments on every day.
        results = (m.text for m in reversed(self._since) if isinstance(m, ToolMessage) and not m.error)
        found = next((f for f in map(_ISO_DATE.search, results) if f is not None), None)
        if found is None:
            return word or ("今天" if self._language == "zh" else "today")
        try:
            today = date(*map(int, found.groups()))
        except ValueError:
            return found[0]
        return (today + timedelta(days=self._script.days[word] if word else 0)).isoformat()

    def _line(self, rule: ScriptRule, result: str) -> str:
        template = self._spoken(rule.line)
        fields = _fields(result)
        names = _VARIABLE.findall(template)
        if template and all(str(fields.get(name, "")) for name in names):
            return _fill(template, {name: str(fields[name]).rstrip() for name in names})
        return _quote(result)

    # --- tools outside the rules -----------------------------------------------------------------

    def commanded(self) -> ScriptTurn | None:
        """The call that the user writes as `Call NAME {arguments}`, with just these arguments; None without one."""
        names = [self._choice.name] if isinstance(self._choice, OneTool) else list(self._tools)
        for found in _COMMAND.finditer(self.asked) if not self._has_results() else ():
            # Names may hold any characters: `read` is no tool where the user names `read_file` or `read-file`.
            name = next((name for name in names if found[1] == name), None)
            if name in self._tools and (arguments := _json_at(self._whole, self._place(found.end()))) is not None:
                return ScriptTurn(tool_calls=(ScriptedCall(name=str(name), arguments=arguments),))
        return None

    def _named_tool(self) -> ToolSpec | None:
        # Whole words, longest first: `read` is part of `read_file`.
        named = [name for name in self._tools if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.asked)]
        return self._tools[max(named, key=len)] if named else None

    def _forced_call(self) -> ScriptTurn | None:
        """The call that the caller demands, once since the user spoke, else its loop would never end."""
        if self._has_results():
            return None
        if isinstance(self._choice, OneTool):
            return self._invented_call(self._tools.get(self._choice.name))
        return self._invented_call(next(iter(self._tools.values()), None)) if self._choice == "required" else None

    def _has_results(self) -> bool:
        return any(isinstance(m, ToolMessage) for m in self._since)

    def _invented_call(self, tool: ToolSpec | None) -> ScriptTurn | None:
        if tool is None:
            return None
        return ScriptTurn(tool_calls=(ScriptedCall(name=tool.name, arguments=self._invented(tool)),))

    def _invented(self, tool: ToolSpec) -> Any:
        """Arguments for a tool that no rule knows: a JSON object in the user's text, else made from the schema."""
        for brace in islice(re.finditer(r"\{", self.asked), _MOST_BRACES):
            start = self._place(brace.start())
            try:
                _decode(self._whole, start)
            except (ValueError, RecursionError):
                continue
            return _json_at(self._whole, start)
        return _fitting(tool, {}, self._variables["topic"])

    def _place(self, place: int) -> int:
        """Where a place of `asked` is in the whole message: JSON goes on beyond what is looked at."""
        return place if place <= _READ_CHARACTERS else place + len(self._whole) - len(self.asked)

    # --- words -----------------------------------------------------------------------------------

    def fit_schema(self, turn: ScriptTurn) -> ScriptTurn:
        """The turn with its text put into the JSON that the caller asked for, if it asked for any."""
        if self._schema is None or _is_object(str(turn.text)):
            return turn
        value = _example(self._schema, str(turn.text))
        if isinstance(value, dict) and isinstance(value.get("reasoningSummary"), str):
            # The form that `output: REASONING_SUMMARY` asks for: what it thinks stands there, and is not said twice.
            value["reasoningSummary"] = turn.reasoning or self._spoken(_SUMMARY_WITHOUT_REASONING)
            turn = msgspec.structs.replace(turn, reasoning="")
        return msgspec.structs.replace(turn, text=msgspec.json.encode(value).decode())

    def _quotes(self) -> list[str]:
        return [_quote(m.text) for m in self._since if isinstance(m, ToolMessage) and m.text]

    def _spoken(self, text: Text) -> str:
        return text if isinstance(text, str) else text.get(self._language) or next(iter(text.values()), "")

    def _joined(self, items: Sequence[str]) -> str:
        return ("、" if self._language == "zh" else ", ").join(items)

    def _fill(self, text: Text, variables: Mapping[str, str]) -> str:
        return _fill(self._spoken(text), variables)


_COMMAND = re.compile(r"\bcall\s+[`'\"]?([^\s`'\"{\[]+)[`'\"]?[\s:]*(?=[{\[])", re.IGNORECASE)


def _json_at(text: str, start: int) -> Any:
    """The JSON that begins here, whatever follows it: an object, else the text itself, for the tool to refuse."""
    try:
        value, end = _decode(text, start)
    except (ValueError, RecursionError):
        return text[start:].strip()
    written = text[start:end]
    try:  # as other calls are written, where that is possible
        return msgspec.json.decode(written) if isinstance(value, dict) else written
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return written


def _decode(text: str, start: int) -> tuple[Any, int]:
    import json  # only for a message with a brace

    return json.JSONDecoder().raw_decode(text, start)


def _ends(text: str) -> str:
    """The text; of a long one both ends, as lines of their own."""
    return text if len(text) <= 2 * _READ_CHARACTERS else f"{text[:_READ_CHARACTERS]}\n{text[-_READ_CHARACTERS:]}"


def _is_object(text: str) -> bool:
    """Whether a script's text is a JSON object: then it says itself what the caller gets, wrong or right."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _is_question(message: Message) -> bool:
    """Whether a person asks here.

    A turn that bears a name was not said by the person: an agent of a team is asked by its colleagues. And a mode that
    wants its forced answer wants it to the question before.
    """
    assert isinstance(message, HumanMessage)
    return message.name is None and not message.text.startswith("No more tools can be called.")


def _asks_for_summary(messages: Sequence[Message]) -> bool:
    """Whether the system prompt asks in words for the form of `output: REASONING_SUMMARY`, as it does with tools on offer."""
    return any(isinstance(m, SystemMessage) and '"reasoningSummary"' in m.text for m in messages[:1])


def _language_of(text: str) -> str:
    return "zh" if _CHINESE.search(text) else "en"


def _groups(found: re.Match[str] | None) -> dict[str, str]:
    return {} if found is None else {name: text or "" for name, text in found.groupdict().items()}


def _fill(text: str, variables: Mapping[str, str]) -> str:
    """`text` with `{name}` replaced; unknown names stay, so JSON and code in a text survive."""
    return _VARIABLE.sub(lambda m: variables.get(m[1], m[0]), text)


def _fitting(tool: ToolSpec, given: Mapping[str, str], topic: str) -> dict[str, Any]:
    """`given` without what is empty or unknown to the tool, with what it requires."""
    properties = _mapping(tool.parameters.get("properties"))
    arguments: dict[str, Any] = {k: v for k, v in given.items() if v and (k in properties or not properties)}
    for name in _items(tool.parameters.get("required")):
        if name not in arguments:
            arguments[name] = _example(properties.get(name), topic)
    return arguments


def _mapping(value: Any) -> Mapping[str, Any]:
    """A part of a schema, which need not be well made: anything but an object (`true`, say) tells nothing."""
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _example(schema: Any, text: str) -> Any:
    """A value of this JSON Schema (the common keywords), its first text being `text`."""
    schema = _mapping(schema)
    if "const" in schema:
        return schema["const"]
    if choices := _items(schema.get("enum")):
        return choices[0]
    if unions := _items(schema.get("anyOf")) or _items(schema.get("oneOf")):
        return _example(unions[0], text)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kinds := _items(kind):
        kind = kinds[0]
    if kind == "object":
        return {name: _example(part, text) for name, part in _mapping(schema.get("properties")).items()}
    if kind == "array":
        return [_example(schema.get("items"), text)]
    examples: dict[str, Any] = {"integer": schema.get("minimum", 1), "number": schema.get("minimum", 1)}
    return examples.get(str(kind), {"boolean": True, "null": None}.get(str(kind), text))


def _fields(result: str) -> dict[str, Any]:
    """The fields of a JSON result, those of a `data` inside it too."""
    try:
        value = msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeError):
        return {}
    if not isinstance(value, dict):
        return {}
    inner = value.get("data")
    return {**value, **inner} if isinstance(inner, dict) else value


def _quote(result: str) -> str:
    return result if len(result) <= _QUOTE_CHARACTERS else result[:_QUOTE_CHARACTERS] + " …"
