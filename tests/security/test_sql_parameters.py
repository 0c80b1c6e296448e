"""SQL: what people and models write is a parameter, never a part of a statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.service.application import Application
from graphflow.settings import load_settings

WRITTEN = [
    "'; DROP TABLE items; --", '" OR 1=1 --', "' UNION SELECT value FROM items --", "%", "_", "\\", "a' || 'b", "$1", "?", ":name", "%s",
]  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
async def test_what_people_write_is_kept_as_it_is_and_finds_nothing_else(tmp_path: Path, text: str):
    async with Application(load_settings(tmp_path, environ={})) as app:
        await app.long_term.put(("ann",), "plain", {"v": "secret"})
        await app.long_term.put((text,), text, {"v": text})
        found = await app.long_term.get((text,), text)
        assert found is not None
        assert found.value == {"v": text}
        assert await app.long_term.get(("ann",), text) is None
        await app.long_term.delete((text,), text)
        kept = await app.long_term.get(("ann",), "plain")
        assert kept is not None
        assert kept.value == {"v": "secret"}
