"""Which models a document may ask, and whether their prices are known: what a limit in money needs (E11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.definition.kinds import Kinds

ASKS_MODELS = frozenset({"model", "plan", "stage", "summary", "task", "verify"})
"""Kinds whose `with` names a model."""
_ASKS_NONE = frozenset({"fn", "tool", "tools", "wait"})
_Asked = tuple[str | None, str | None, tuple[str, ...] | None]
"""Provider key, model, and the models that are asked where it fails; None leaves those to the provider."""


def unpriced(documents: Iterable[GraphDefinition], kinds: Kinds) -> list[str]:
    """The models that these graphs may ask and whose price is not known, as a message names them.

    Kinds list them by an optional method, `unpriced(provider key, model, fallback) -> names`; without it no price is known.
    """
    known = getattr(kinds, "unpriced", _none_known)
    asked = dict.fromkeys(one for document in documents for one in _asked(document))
    # A name that an expression gives at run time may be that of a model without a price.
    found = ([_late_name(one)] if _is_late(one) else known(*one) for one in asked)
    return list(dict.fromkeys(name for names in found for name in names))


def prices_hint(missing: Sequence[str]) -> str:
    """What to do about models without a price."""
    name = next((name for name in missing if " " not in name and "${" not in name), "PROVIDER/MODEL")
    return f'write [prices."{name}"] into graphflow.toml, or limit maxTokens or maxModelCalls instead of maxCostUsd'


def with_subgraphs(document: GraphDefinition, subgraphs: Mapping[str, CheckedDocument]) -> Iterator[GraphDefinition]:
    """The document and all below it: they spend the same budget."""
    yield document
    for inner in subgraphs.values():
        yield from with_subgraphs(inner.document, inner.subgraphs)


def _none_known(provider: str | None, model: str | None, fallback: Sequence[str] | None) -> list[str]:
    return [_name(provider, model), *(fallback or ())]


def _name(provider: str | None, model: str | None) -> str:
    return f"{provider or 'auto'}/{model or 'its default model'}"


def _is_late(asked: _Asked) -> bool:
    provider, model, fallback = asked
    return any("${" in name for name in (provider, model, *(fallback or ())) if name is not None)


def _late_name(asked: _Asked) -> str:
    provider, model, fallback = asked
    late = next((name for name in fallback or () if "${" in name), None)
    return f"{late or _name(provider, model)} (chosen when the node runs)"


def _asked(document: GraphDefinition) -> Iterator[_Asked]:
    """What each node names that asks a model, else what the document itself names, and what a request may choose."""
    nodes = [node for node in document.nodes.values() if node.use in ASKS_MODELS]
    allowed = document.per_request.models if document.per_request is not None else ()
    for node in nodes:
        given: Mapping[str, Any] = node.with_ if isinstance(node.with_, Mapping) else {}
        fallback = _fallback(given.get("options"), _fallback(document.options, None))
        yield given.get("providerKey", document.provider_key), given.get("model", document.model), fallback
        if not {"model", "providerKey"} & given.keys():
            yield from ((document.provider_key, name, fallback) for name in allowed)
    # Python nodes open the model that the document names.
    if not nodes and any(
        node.use is not None and node.use.partition(":")[0] not in _ASKS_NONE for node in document.nodes.values()
    ):
        fallback = _fallback(document.options, None)
        yield from ((document.provider_key, name, fallback) for name in (document.model, *allowed))


def _fallback(options: Any, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
    names = options.get("fallback") if isinstance(options, Mapping) else None
    if isinstance(names, str):  # an expression
        return (names,)
    return tuple(map(str, names)) if isinstance(names, list | tuple) else default
