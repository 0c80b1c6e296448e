"""A large result of a node is encoded and hashed beside the event loop."""

from __future__ import annotations

import threading
from typing import Annotated, Any, TypedDict

import pytest

from graphflow import Graph, MemoryCheckpointer
from graphflow.content import ImagePart
from graphflow.messages import HumanMessage

THREADS: list[str] = []


def keep(old: list[Any] | None, new: list[Any]) -> list[Any]:
    THREADS.append(threading.current_thread().name)
    return [*(old or []), *new]


class State(TypedDict):
    said: Annotated[list[Any], keep]


@pytest.mark.parametrize("result", [b"\x89PNG" + bytes(2 << 20), "x" * (2 << 20), b"\x89PNG" + bytes(8192), "x"])
async def test_a_result_of_megabytes_is_computed_in_a_thread(result: bytes | str) -> None:
    graph = Graph(State)

    @graph.node
    async def write(state: State) -> dict[str, Any]:
        image = ImagePart(data=result, media_type="image/png") if isinstance(result, bytes) else result
        return {"said": [HumanMessage(content=(image,)) if isinstance(image, ImagePart) else image]}

    THREADS.clear()
    done = await graph.compile(checkpointer=MemoryCheckpointer()).run()
    (said,) = done.state["said"]
    is_large = len(result) > 1 << 20
    assert THREADS[-1].startswith("graphflow-join") is is_large
    if isinstance(said, HumanMessage):
        part = said.content[0]
        assert isinstance(part, ImagePart) and part.size == len(result) and part.data is None
    else:
        assert said == result
