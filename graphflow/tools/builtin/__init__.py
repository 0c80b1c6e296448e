"""The tools that every application has unless it says otherwise."""

from __future__ import annotations

from graphflow.tools.builtin.bash import BashPolicy, bash_tool
from graphflow.tools.builtin.maths import math_eval
from graphflow.tools.builtin.task import task_done
from graphflow.tools.builtin.times import city_datetime, time_now
from graphflow.tools.builtin.weather import mock_city_weather
from graphflow.tools.port import Tool


def builtin_tools(*, bash: BashPolicy | None = None) -> list[Tool]:
    """The built-in tools.

    Args:
        bash: where `bash` may look; default: the process's working directory only.
    """
    return [bash_tool(bash or BashPolicy()), city_datetime, mock_city_weather, task_done, time_now, math_eval]


__all__ = ["BashPolicy", "builtin_tools"]
