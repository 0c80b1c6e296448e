"""What each provider and model wants back with a conversation, as data: state, fillers, and the form of call ids.

Every row names its source and a day: when the page was read, or the date of the report. A provider's own rows win over those for all
providers, so a gateway can differ from the models behind it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FIRST_CALL_ID = "<id of the first call>"
"""In a filler: the id of the message's first call, as the provider gets it."""


class ReplayRule(msgspec.Struct, frozen=True, kw_only=True):
    """State that goes back, in which fields and turns, and what stands in its place in turns of other providers."""

    providers: tuple[str, ...] = ()
    """Keys; empty: all that have no row of their own."""
    models: str = ""
    """Pattern, searched in the model's name without regard to case; empty: all."""
    message: tuple[str, ...] = ()
    """Fields of the assistant message that are kept and sent back."""
    call: tuple[str, ...] = ()
    """Fields of its tool calls, likewise."""
    turns: Literal["all", "tools"] = "all"
    """`tools`: only in turns (from one user message to the next) in which a tool was called."""
    scope: Literal["model", "provider"] = "model"
    """Whether the state is for the model that wrote it, or for all of its provider."""
    message_filler: dict[str, Any] = {}
    """Fields for a message with calls that has no state of its own: without them the request is refused."""
    call_filler: dict[str, Any] = {}
    """Fields for the first call of such a message."""
    checked: str
    """The day the page was read, or the date of the report, `YYYY-MM-DD`."""
    source: str


class CallIdRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which ids of calls a provider accepts; others are mapped, see `call_ids.accepted`."""

    providers: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    """Of providers that no row names, those that speak one of these have this row too."""
    models: str = ""
    alphabet: str = "A-Za-z0-9_-"
    """Characters, as in a character class of a pattern."""
    longest: int
    shortest: int = 1
    checked: str
    source: str


class OrderRule(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between the results of calls and what a user says, for those who refuse the one right behind the other."""

    providers: tuple[str, ...] = ()
    models: str = ""
    bridge: str
    """Text of an assistant message."""
    checked: str
    source: str


_GEMINI_3 = r"gemini-([3-9]|\w+-latest)"
CLAUDE_LIBRARY = ("anthropic", "vertexaianthropic", "azureanthropic")
BEDROCK = "bedrock"
"""Keys of the library."""

REPLAY_RULES: tuple[ReplayRule, ...] = (
    ReplayRule(
        # All turns with calls, those of earlier user messages too; "" is taken where there was no reasoning.
        providers=("deepseek",),
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        message_filler={"reasoning_content": ""},
        checked="2026-11-23",
        source="https://api-docs.deepseek.com/guides/thinking_mode",
    ),
    ReplayRule(
        # "thinking is enabled but reasoning_content is missing in assistant tool call message at index N"
        providers=("moonshot",),
        models=r"kimi-(k2\.[5-9]|k2-thinking|k[3-9]|thinking|latest)",
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        # Not empty: K2.6 reports an empty text as missing; a single space is the least that it accepts.
        message_filler={"reasoning_content": " "},
        checked="2026-05-05",
        source="https://github.com/earendil-works/pi/pull/4178",
    ),
    ReplayRule(
        # Asked for since GLM-4.5, but no refusal is documented: no filler.
        providers=("zhipu",),
        models=r"glm-(4\.[5-9]|[5-9])",
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        checked="2026-11-23",
        source="https://docs.z.ai/guides/capabilities/thinking-mode",
    ),
    ReplayRule(
        # Blocks whole and in their order; fragments are refused ("Invalid signature in thinking block").
        providers=("openrouter",),
        message=("reasoning_details",),
        checked="2026-07-07",
        source="https://github.com/agno-agi/agno/issues/8794",
    ),
    ReplayRule(
        # "Gemini models require OpenRouter reasoning details to be preserved in each request": one entry for each turn.
        providers=("openrouter",),
        models=r"^google/gemini-([3-9]|\w+-latest)",
        message=("reasoning_details",),
        message_filler={
            "reasoning_details": [
                {
                    "type": "reasoning.encrypted",
                    "data": "skip_thought_signature_validator",
                    "id": FIRST_CALL_ID,
                    "format": "google-gemini-v1",
                    "index": 0,
                }
            ]
        },
        checked="2026-01-12",
        source="https://github.com/RooCodeInc/Roo-Code/pull/10640",
    ),
    ReplayRule(
        # The gateway hands the refusal of the model's own service on: "reasoning_content is missing in assistant tool call message".
        providers=("openrouter",),
        models=r"^moonshotai/kimi-(k2\.[5-9]|k2-thinking|k[3-9])",
        message=("reasoning_details",),
        message_filler={"reasoning_content": " "},
        checked="2026-01-29",
        source="https://github.com/avante-corp/avante.nvim/pull/2940",
    ),
    ReplayRule(
        # "The reasoning_details field … must be preserved completely", as it came with `reasoning_split`.
        providers=("minimax",),
        message=("reasoning_details",),
        checked="2026-11-23",
        source="https://platform.minimax.io/docs/api-reference/text-openai-api",
    ),
    ReplayRule(
        # As a thinking part of the content, before the text: "the full assistant message, thinking trace included".
        providers=("mistral",),
        message=("thinking", "extra_content"),
        checked="2026-08-05",
        source="https://docs.mistral.ai/studio-api/conversations/reasoning",
    ),
    ReplayRule(
        # Reasoning of turns with tools is used; models before refuse the field ("property 'reasoning' is unsupported").
        providers=("groq",),
        models="gpt-oss",
        message=("reasoning",),
        turns="tools",
        checked="2026-07-22",
        source="https://github.com/vercel/ai/issues/7860",
    ),
    ReplayRule(
        # Xiaomi's, wherever they are served: 400 without it.
        models=r"mimo-v\d",
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        message_filler={"reasoning_content": " "},
        checked="2026-05-18",
        source="https://github.com/JohnnyZ93/oai-compatible-copilot/pull/259",
    ),
    ReplayRule(
        # Through the library: the blocks of the turn, as the native client keeps them.
        providers=(*CLAUDE_LIBRARY, BEDROCK),
        message=("content", "thinking"),
        checked="2026-11-23",
        source="https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
    ),
    ReplayRule(
        # The OpenAI protocol of Vertex has the signatures under a name of its own.
        providers=("vertex",),
        models=_GEMINI_3,
        message=("extra_content",),
        call=("extra_content",),
        call_filler={"extra_content": {"vertex": {"thought_signature": "skip_thought_signature_validator"}}},
        checked="2026-07-16",
        source="https://github.com/earendil-works/pi/issues/6733",
    ),
    ReplayRule(
        # Only the calls since the last user message are validated; the page asks for all signatures as received.
        models=_GEMINI_3,
        message=("extra_content",),
        call=("extra_content",),
        call_filler={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
        checked="2026-11-23",
        source="https://ai.google.dev/gemini-api/docs/thought-signatures",
    ),
    ReplayRule(
        # The same models behind other servers, which refuse with the same words.
        models=r"kimi-(k2\.[5-9]|k2-thinking|k[3-9])",
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        message_filler={"reasoning_content": " "},
        checked="2026-03-03",
        source="https://github.com/agentscope-ai/QwenPaw/issues/433",
    ),
    ReplayRule(
        # Behind a gateway too: "Error from provider (DeepSeek): The `reasoning_content` … must be passed back".
        models=r"deepseek-(v[4-9]|flash|pro)",
        message=("reasoning_content",),
        turns="tools",
        scope="provider",
        message_filler={"reasoning_content": ""},
        checked="2026-05-23",
        source="https://github.com/warpdotdev/warp/issues/11587",
    ),
    ReplayRule(
        # What no row is about goes back as it came: only a server that sends these fields gets them. A choice of ours;
        # the source shows both fields in use behind gateways, and no page demands this of every server.
        message=("reasoning_details", "extra_content"),
        call=("extra_content",),
        checked="2026-07-16",
        source="https://github.com/earendil-works/pi/issues/6733",
    ),
)

CALL_ID_RULES: tuple[CallIdRule, ...] = (
    CallIdRule(
        # "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."
        providers=("mistral",),
        alphabet="A-Za-z0-9",
        longest=9,
        shortest=9,
        checked="2025-08-07",
        source="https://github.com/anomalyco/opencode/issues/1680",
    ),
    CallIdRule(
        # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; no length is documented, 64 is that of Bedrock.
        providers=CLAUDE_LIBRARY,
        longest=64,
        checked="2026-06-15",
        source="https://github.com/HKUDS/nanobot/pull/4356",
    ),
    CallIdRule(
        # Copies of the page differ: one allows ".:" too. Claude behind it does not, so the narrower alphabet stays.
        providers=(BEDROCK,),
        longest=64,
        checked="2026-11-23",
        source="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
    ),
    CallIdRule(
        # "string too long. Expected a string with maximum length 40"; Azure: github.com/BerriAI/litellm/issues/11392.
        # In 2026-07 OpenAI took 51 characters (github.com/vercel/ai/pull/17233); the shorter form suits both.
        # Nothing is known of the alphabet: visible ASCII is an assumption.
        providers=("openai", "azure"),
        protocols=("responses",),
        alphabet=r"!-~",
        longest=40,
        checked="2025-11-11",
        source="https://github.com/agno-agi/agno/issues/5382",
    ),
    CallIdRule(
        # A gateway hands ids on to whoever serves the model: the limits of Claude and Bedrock, see above.
        providers=("openrouter",),
        models=r"^(anthropic|amazon)/",
        longest=64,
        checked="2026-11-23",
        source="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
    ),
    CallIdRule(
        # As OpenAI itself, see above.
        providers=("openrouter",),
        models=r"^openai/",
        alphabet=r"!-~",
        longest=40,
        checked="2025-11-11",
        source="https://github.com/agno-agi/agno/issues/5382",
    ),
    CallIdRule(
        providers=("openrouter",),
        models=r"^mistralai/",
        alphabet="A-Za-z0-9",
        longest=9,
        shortest=9,
        checked="2026-03-23",
        source="https://github.com/openclaw/openclaw/issues/52548",
    ),
)

_BRIDGE = "OK."

ORDER_RULES: tuple[OrderRule, ...] = (
    OrderRule(
        # "Unexpected role 'user' after role 'tool'": a user who interrupts, and images of results, which follow them.
        providers=("mistral",),
        bridge=_BRIDGE,
        checked="2025-12-04",
        source="https://github.com/datapizza-labs/datapizza-ai/issues/98",
    ),
    OrderRule(
        # The same models behind other servers, whose chat templates refuse it with the same words.
        models="mistral|ministral|devstral|codestral|magistral|pixtral",
        bridge=_BRIDGE,
        checked="2026-05-05",
        source="https://github.com/NousResearch/hermes-agent/issues/20154",
    ),
)
