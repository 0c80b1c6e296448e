"""Counting one model call: before it, so that no limit is passed, and after it, by what the provider says (spec 1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from graphflow.errors import BudgetExceeded
from graphflow.graph.engine.node_run import NodeRun
from graphflow.models.deltas import FallbackDelta, Usage

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel
    from graphflow.models.prices import Prices

_CUT_OFF = {"cutOffCalls": 1, "unpricedCalls": 1}


class CallMeter:
    """Counts the usage of one call: `begun`, then `end` or `refused`.

    Until `end` the call counts as cut off, so a failure or a cancel leaves it counted that way.

    Args:
        key: of the operation that records the call, if one does.
    """

    def __init__(self, ctx: NodeRun, model: ChatModel, key: str | None = None) -> None:
        self._ctx, self._model, self._key = ctx, model, key
        self._name = (model.provider, model.model)
        self._fell_back = False

    @classmethod
    def begun(cls, ctx: NodeRun, model: ChatModel, key: str | None = None) -> Self:
        """The meter of a call that begins now; see `begin`."""
        meter = cls(ctx, model, key)
        meter.begin()
        return meter

    def begin(self) -> None:
        """Counts the call.

        Raises:
            BudgetExceeded: no call, token or money is left, or money is limited and the price of the model unknown.
            NodeRunOver: the node run has ended.
        """
        ctx = self._ctx
        ctx.refuse_when_over()
        # Before the charge: an unknown price is an error of the settings and costs no call.
        if "costUsd" in ctx.limits:
            self._must_be_priced()
        ctx.name_model(*self._name)
        # Counted before the request, so that parallel branches can't overdraw the budget together.
        ctx.charge_model_call(_CUT_OFF, self._key)

    @property
    def _prices(self) -> Prices | None:
        prices: Prices | None = self._ctx.services.get("prices")
        return prices

    def _must_be_priced(self) -> None:
        ctx = self._ctx
        limit = ctx.limits.get("costUsd")
        if limit is None or (self._prices is not None and self._prices.find(*self._name) is not None):
            return
        name = "/".join(self._name)
        raise BudgetExceeded(
            f"the budget limits the cost, and the price of {name} is not known, which never counts as 0; write"
            f' [prices."{name}"] into graphflow.toml, or leave maxCostUsd out',
            figure="costUsd",
            limit=limit,
            used=None,
        )

    def refused(self) -> None:
        """The call failed before the first delta: there is nothing to pay, so only the call itself counts."""
        self._ctx.name_model(*self._name)
        self._ctx.end_model_call(_CUT_OFF, {}, self._key)

    def fall_back(self, told: FallbackDelta) -> None:
        """The call failed before the first delta, and another model is asked: a call of its own, by its own price.

        Readers are told by a `node.progress` event.

        Raises:
            BudgetExceeded, NodeRunOver: as `begin`; then the other is not asked.
        """
        ctx = self._ctx
        self.refused()
        # The failed call is over whatever becomes of the operation, so it counts with the next record.
        if self._key is not None:
            ctx.forget_charge(self._key)
        self._name, self._fell_back = (told.provider, told.model), True
        self.begin()
        facts = {"code": "model_fallback", "failed": told.failed, "provider": told.provider, "model": told.model}
        why = {"errorCode": told.code, "message": told.message}
        ctx.emit({"warning": facts | why | ({"ignored": list(told.ignored)} if told.ignored else {})})

    def end(self, usage: Usage | None) -> None:
        """Counts the finished turn; `usage` is None if the provider does not report it."""
        self._ctx.name_model(*self._name)
        self._ctx.end_model_call(_CUT_OFF, self._used(usage), self._key)

    def _used(self, usage: Usage | None) -> dict[str, float]:
        # A model of a user may have no capabilities.
        answers_for_nobody = getattr(getattr(self._model, "capabilities", None), "stands_in", False)
        stands_in = {"standInCalls": 1} if answers_for_nobody and not self._fell_back else {}
        if usage is None:
            return {"uncountedCalls": 1, "unpricedCalls": 1, **stands_in}
        prices = self._prices
        cost_usd = None if prices is None else prices.cost_usd(*self._name, usage)
        return {
            "promptTokens": usage.prompt_tokens,
            "completionTokens": usage.completion_tokens,
            "reasoningTokens": usage.reasoning_tokens,
            "cachedTokens": usage.cached_tokens,
            **({"cacheWriteTokens": usage.cache_write_tokens} if usage.cache_write_tokens else {}),
            **stands_in,
            **({"unpricedCalls": 1} if cost_usd is None else {"costUsd": cost_usd}),
        }
