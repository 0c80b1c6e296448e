"""Which models a document calls, and whether their prices are known: what a limit in money needs (E11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.definition.kinds import Kinds


def unpriced(document: GraphDefinition, kinds: Kinds) -> list[str]:
    """The models of this document whose price is not known, as a message names them.

    Kinds tell prices by an optional method, `priced(provider key, model) -> bool`; without it none is known.
    """
    priced = getattr(kinds, "priced", None)
    out = []
    for provider, model in dict.fromkeys(_called(document)):
        # A name that an expression gives at run time may be that of a model without a price.
        chosen_late = any("${" in name for name in (provider, model) if name is not None)
        if chosen_late or priced is None or not priced(provider, model):
            out.append(f"{provider or 'auto'}/{model or 'its default model'}")
    return out


def _called(document: GraphDefinition) -> Iterator[tuple[str | None, str | None]]:
    """`(provider key, model)` of each `model` node, else what the document itself names, and those of fallbacks."""
    nodes = [node for node in document.nodes.values() if node.use == "model"]
    yield from _fallbacks(document.options)
    for node in nodes:
        given: Mapping[str, Any] = node.with_ if isinstance(node.with_, Mapping) else {}
        yield given.get("providerKey", document.provider_key), given.get("model", document.model)
        yield from _fallbacks(given.get("options"))
    # Python nodes open the model that the document names.
    if not nodes:
        yield document.provider_key, document.model


def _fallbacks(options: Any) -> Iterator[tuple[str, str | None]]:
    names = options.get("fallback") if isinstance(options, Mapping) else None
    for name in names if isinstance(names, list | tuple) else ():
        provider, *model = re.split("[/:]", str(name), maxsplit=1)
        yield provider, model[0] if model else None
