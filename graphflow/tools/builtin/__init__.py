"""The tools that every application has unless it says otherwise."""

from __future__ import annotations

from graphflow.tools.builtin.actions import launch_fireworks, show_modal, switch_theme
from graphflow.tools.builtin.bash import BashPolicy, bash_tool
from graphflow.tools.builtin.http import HttpPolicy, http_tool
from graphflow.tools.builtin.maths import math_eval
from graphflow.tools.builtin.task import task_done
from graphflow.tools.coding import coding_tools
from graphflow.tools.demo.logistics import mock_logistics_status
from graphflow.tools.demo.runbook import mock_ops_runbook
from graphflow.tools.demo.sensitive import mock_sensitive_data_detector
from graphflow.tools.demo.times import city_datetime, time_now
from graphflow.tools.demo.weather import mock_city_weather
from graphflow.tools.port import Tool
from graphflow.tools.workspace.homes import Workspaces

_FIXED = (
    city_datetime,
    mock_city_weather,
    task_done,
    time_now,
    math_eval,
    mock_logistics_status,
    mock_ops_runbook,
    mock_sensitive_data_detector,
    switch_theme,
    launch_fireworks,
    show_modal,
)


def builtin_tools(
    *, bash: BashPolicy | None = None, http: HttpPolicy | None = None, workspaces: Workspaces | None = None
) -> list[Tool]:
    """The built-in tools.

    Args:
        bash: where `bash` may look; default: the process's working directory only.
        http: where `http_request` may go; default: any public address.
        workspaces: the workspace of each thread; default: the folder of `bash` for all.
    """
    bash = bash or BashPolicy()
    workspaces = workspaces or bash.workspaces()
    return [bash_tool(bash, workspaces), http_tool(http), *_FIXED, *coding_tools(workspaces)]


__all__ = ["BashPolicy", "HttpPolicy", "builtin_tools"]
