"""`mock_logistics_status`: an invented parcel, the same for the same arguments."""

from __future__ import annotations

import hashlib
from typing import Any

from graphflow.tools.port import tool
from graphflow.tools.result import ToolResult, failed

_CARRIERS = ("SF Express", "ZTO Express", "YTO Express", "STO Express", "EMS", "JD Logistics")
_PLACES = ("Shanghai", "Hangzhou", "Nanjing", "Wuhan", "Zhengzhou", "Beijing", "Guangzhou", "Chengdu")
_STAGES = ("picked up", "in transit", "at the sorting centre", "out for delivery", "delivered")


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {
            "trackingNo": {"type": "string", "description": "Number of the parcel."},
            "carrier": {"type": "string", "description": "Who carries it, if that is known."},
        },
        "required": ["trackingNo"],
        "additionalProperties": False,
    },
)
def mock_logistics_status(trackingNo: str, carrier: str = "") -> dict[str, Any] | ToolResult:  # noqa: N803 - wire name
    """Where a parcel is. Invented for demonstrations: the same arguments always give the same parcel."""
    number = trackingNo.strip()
    if not number:
        return failed("INVALID_PARAM", "trackingNo: it is blank", "Ask for the number of the parcel.")
    # From a digest, not from `random` or `hash`: the same parcel in each process, so that a replay gives the same run.
    draws = hashlib.sha256(f"{number}|{carrier.strip().casefold()}".encode()).digest()
    stage = draws[0] % len(_STAGES)
    start = draws[1] % len(_PLACES)
    track = [
        {"step": index + 1, "status": status, "place": _PLACES[(start + index) % len(_PLACES)]}
        for index, status in enumerate(_STAGES[: stage + 1])
    ]
    return {
        "trackingNo": number,
        "carrier": carrier.strip() or _CARRIERS[draws[2] % len(_CARRIERS)],
        "status": _STAGES[stage],
        "place": track[-1]["place"],
        "etaDays": 0 if stage == len(_STAGES) - 1 else 1 + draws[3] % 4,
        "track": track,
        "mockTag": "mock",
    }
