"""The table: every setting with its default, unit, environment names and meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from graphflow.approval_mode import ApprovalMode
from graphflow.bounds import Bounds


def _setting(
    default: Any,
    meaning: str,
    *,
    env: str = "",
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    secret: bool = False,
    reserved: bool = False,
) -> Any:
    """A row of the table; `env` holds the given names besides the ruled one, separated by spaces.

    A `secret` value is never shown; a `reserved` one is accepted and checked, but nothing reads it yet.
    """
    row = {"meaning": meaning, "env": tuple(env.split()), "unit": unit, "least": least, "most": most}
    row |= {"secret": secret, "reserved": reserved}
    # Settings are printed in tests and tracebacks; a secret must not be among them.
    return field(default=default, metadata=row, repr=not secret)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    host: str = _setting("127.0.0.1", "Address that `graphflow serve` listens on.")
    port: int = _setting(
        8080, "Port that `graphflow serve` listens on; 0 takes a free one.", env="SERVER_PORT", least=0, most=65535
    )
    tokens: tuple[str, ...] = _setting(
        (),
        "Bearer tokens that may call the API, `SECRET` or `NAME[@USER]:SCOPES:SECRET` each. Empty: no"
        " token is needed. See [deploy](../how-to/deploy.md#authentication-and-authorization).",
        env="GRAPHFLOW_TOKENS",
        secret=True,
    )
    capabilities: tuple[str, ...] = _setting(
        (),
        "Tokens or users whose runs may do less, `NAME=CAPABILITY+CAPABILITY` or `@USER=…` each (`bob=net`, `@ann=` for none)."
        " See [approvals](../how-to/approvals.md#capabilities).",
    )
    cors_origins: tuple[str, ...] = _setting((), "Origins that browsers may call from. Empty: CORS is off.")
    allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Host names that the server answers to, besides loopback names and IP addresses; `*.example.com` and `*` are allowed."
        " Any other is refused with 421. Empty with tokens: every name. See"
        " [deploy](../how-to/deploy.md#host-names).",
    )
    max_body_bytes: int = _setting(
        16_777_216, "Largest request body; a larger one is refused with 413.", unit="bytes", least=1
    )
    max_body_values: int = _setting(
        50_000,
        "Most values of a request body of more than 64 KiB: entries of lists and objects, at any depth. Reading more would keep"
        " every other request waiting; they are refused with 413.",
        unit="values",
        least=1,
    )
    max_connections: int = _setting(
        1_000, "Open connections; a further one is answered with 503 and closed.", unit="connections", least=1
    )
    max_connections_per_address: int = _setting(
        100,
        "Open connections of one address; a further one is answered with 503 and closed. Loopback and trusted proxies have"
        " no such limit; behind a trusted proxy it holds for the requests at once of the address that it names.",
        unit="connections",
        least=1,
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Addresses and networks of proxies (`10.0.0.5`, `10.0.0.0/8`) whose `Forwarded` or `X-Forwarded-For` names the"
        " client. From any other peer these headers are ignored.",
    )
    request_head_s: float = _setting(
        15.0, "Time for the head of a request to arrive; then the connection is closed.", unit="s", least=0.1
    )
    request_body_s: float = _setting(
        60.0, "Time without progress after which a connection with an unfinished body is closed.", unit="s", least=0.1
    )
    max_requests_per_minute: int | None = _setting(
        None,
        "Requests that a token may make in a minute; more are refused with 429. None: no limit.",
        least=1,
    )
    max_runs: int | None = _setting(
        None,
        "Concurrent runs of this process; a further one is refused with 503. None: no limit.",
        unit="runs",
        least=1,
    )
    max_queued: int = _setting(1_000, "Queued inputs of one thread; a further one is refused with 503.", least=1)
    heartbeat_s: float = _setting(15.0, "Silence after which a stream sends a comment line.", unit="s", least=0.1)
    shutdown_grace_s: float = _setting(
        10.0,
        "Time for running nodes to finish when the server stops; what still runs is handed over to other servers.",
        unit="s",
        least=0,
    )
    take_over: bool = _setting(
        True,
        "Go on with runs whose server crashed or handed them over. See [deploy](../how-to/deploy.md#several-servers).",
    )


@dataclass(frozen=True, kw_only=True)
class AgentsSettings:
    dir: Path = _setting(Path("graphs"), "Folder of the agent files.", env="AGENT_EXTERNAL_DIR")
    refresh_interval_ms: int = _setting(
        10_000,
        "How often the folders are scanned if the system does not report changes.",
        env="AGENT_REFRESH_INTERVAL_MS",
        unit="ms",
        least=100,
    )
    per_request: tuple[str, ...] = _setting(
        ("model", "options", "variables"),
        "What requests may choose where an agent's `perRequest` allows it; it allows no more than the agent does.",
    )


@dataclass(frozen=True, kw_only=True)
class ToolsSettings:
    dir: Path = _setting(Path("graphs/tools"), "Folder of the tool files.", env="AGENT_TOOLS_EXTERNAL_DIR")
    modules: tuple[str, ...] = _setting(
        (),
        "Python modules whose tools, functions and nodes are registered; importable from the folder of `graphflow.toml`. Also `[tools] modules`.",
    )
    approval_mode: ApprovalMode | None = _setting(
        None, "Approval for agents that do not set it.", env="AGENT_TOOLS_APPROVAL_MODE"
    )
    hold_ms: int = _setting(
        300_000,
        "How long a stream stays open while it waits for a person's answer.",
        env="AGENT_TOOLS_FRONTEND_SUBMIT_TIMEOUT_MS",
        unit="ms",
        least=0,
    )
    max_result_chars: int = _setting(
        50_000,
        "Characters of a tool's result that the model receives; the thread keeps the whole result.",
        env="AGENT_TOOLS_MAX_RESULT_CHARS",
        least=1,
    )
    legacy_adapter: bool = _setting(True, "Convert tool results of the older dict format.", env="ENABLE_LEGACY_ADAPTER")
    mcp_servers: str | None = _setting(
        None,
        "MCP servers as JSON, in addition to `[mcp.NAME]`. See [MCP servers](../how-to/mcp.md).",
        env="MCP_SERVERS",
        secret=True,
    )
    circuit_failure_threshold: int = _setting(
        3,
        "Consecutive failures after which a tool is not called.",
        env="CIRCUIT_FAILURE_THRESHOLD",
        least=1,
    )
    circuit_recovery_s: float = _setting(
        300.0, "How long it is not called.", env="CIRCUIT_RECOVERY_TIMEOUT", unit="s", least=0
    )


@dataclass(frozen=True, kw_only=True)
class WorkspacesSettings:
    dir: Path = _setting(
        Path("workspaces"),
        "Folder of the users' workspaces, one below it for each. See [workspaces](../how-to/workspaces.md).",
    )


@dataclass(frozen=True, kw_only=True)
class BashSettings:
    working_directory: Path = _setting(
        Path(),
        "Folder in which the `bash` tool works if no token names a user; with users it is the workspace of the thread's"
        " user. See [workspaces](../how-to/workspaces.md).",
        env="AGENT_BASH_WORKING_DIRECTORY",
    )
    allowed_paths: tuple[str, ...] = _setting(
        (), "Other folders that commands may name.", env="AGENT_BASH_ALLOWED_PATHS"
    )
    allow_network: bool = _setting(False, "Let programs that `bash` starts use the network.", env="BASH_ALLOW_NETWORK")
    sandbox: Literal["required", "preferred", "off"] | None = _setting(
        None,
        "Sandbox of the programs that `bash` starts: without one `required` refuses every command, `preferred` starts them anyway."
        " None: `required` with users, else `preferred`. See [workspaces](../how-to/workspaces.md#sandbox).",
    )


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    hosts: tuple[str, ...] = _setting(
        (),
        "Hosts that `http_request` may call; `.example.com` includes all subdomains. Empty: every public host.",
    )
    methods: tuple[str, ...] = _setting(
        ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), "Methods that `http_request` may use."
    )
    private_hosts: tuple[str, ...] = _setting(
        (), "Hosts that `http_request` may call although their addresses are private."
    )
    max_bytes: int = _setting(1_048_576, "Most bytes of a response that `http_request` reads.", unit="bytes", least=1)
    timeout_s: float = _setting(30.0, "Time limit of a call of `http_request`.", unit="s", least=0.1)


@dataclass(frozen=True, kw_only=True)
class WebhooksSettings:
    secrets: tuple[str, ...] = _setting(
        (),
        "Secrets that sign webhooks, `whsec_BASE64` or any text; each signs, so that receivers can change to a new one."
        " Empty: a query with `webhook` is refused. See [background runs](../how-to/background-runs.md).",
        secret=True,
    )
    private_hosts: tuple[str, ...] = _setting((), "Hosts that webhooks may reach although their addresses are private.")
    timeout_s: float = _setting(10.0, "Time in which a receiver answers.", unit="s", least=0.1)
    max_attempts: int = _setting(16, "Attempts of a delivery, the first included.", least=1)
    retry_s: float = _setting(
        5.0, "Pause before the second attempt; it doubles with each, up to an hour.", unit="s", least=0.01
    )


@dataclass(frozen=True, kw_only=True)
class LlmSettings:
    provider: str | None = _setting(None, "Provider of agents that name none.", env="LLM_PROVIDER")
    api_key: str | None = _setting(
        None, "Key for the provider; has priority over the provider's own variable.", env="LLM_API_KEY", secret=True
    )
    base_url: str | None = _setting(None, "Address of an OpenAI-compatible server, with its `/v1`.", env="LLM_BASE_URL")
    model_id: str | None = _setting(None, "Model of agents that name none.", env="LLM_MODEL_ID")
    timeout_s: float = _setting(
        120.0,
        "Longest wait for the first data of a model call, and between data.",
        env="LLM_TIMEOUT",
        unit="s",
        least=0.1,
    )
    max_retries: int = _setting(
        2, "Retries (not attempts) before anything was streamed.", env="LLM_MAX_RETRIES", least=0, most=20
    )
    models_file: Path = _setting(
        Path("graphflow-models.json"),
        "Newer facts about models, which `graphflow models refresh` writes; may be missing.",
    )
    interaction_log_enabled: bool = _setting(
        True, "Log model calls: a summary at info, each delta at debug.", env="AGENT_LLM_INTERACTION_LOG_ENABLED"
    )
    interaction_log_mask_sensitive: bool = _setting(
        True, "Mask keys, tokens and passwords in that log.", env="AGENT_LLM_INTERACTION_LOG_MASK_SENSITIVE"
    )


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    path: Path = _setting(Path("checkpoints/threads.db"), "File of the SQLite store.")
    url: str | None = _setting(
        None,
        "PostgreSQL instead of SQLite, `postgresql://user:password@host/database`; needs"
        " `graphflow[postgres]`. See [stores](../how-to/stores.md).",
        env="GRAPHFLOW_CHECKPOINTS",
        secret=True,
    )
    db_schema: str = _setting("graphflow", "Schema of that database; only the store uses it.")
    durability: Literal["async", "sync"] = _setting(
        "async", "`sync` commits each step before the next node starts, `async` while it runs."
    )
    keys: tuple[str, ...] = _setting(
        (),
        "Encryption keys, `ID:BASE64` each; the first encrypts, all of them decrypt. See"
        " [encryption](../how-to/encryption.md).",
        secret=True,
    )
    compression: bool = _setting(False, "Compress stored data (zstd) before encryption.")
    lease_ms: int = _setting(
        15_000,
        "Lease of a process on a thread, renewed three times in that period; then others may take the thread.",
        unit="ms",
        least=300,
    )


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    chat_dir: Path = _setting(Path("checkpoints/chats"), "Folder of the transcripts.", env="MEMORY_CHAT_DIR")
    chat_k: int = _setting(20, "Runs of a chat that the model sees.", env="MEMORY_CHAT_K", unit="runs", least=1)
    chat_charset: str = _setting("UTF-8", "Encoding of the transcripts.", env="MEMORY_CHAT_CHARSET")
    chat_action_tools: tuple[str, ...] = _setting(
        (), "Tools whose calls appear in transcripts as actions.", env="MEMORY_CHAT_ACTION_TOOLS"
    )


@dataclass(frozen=True, kw_only=True)
class UploadsSettings:
    dir: Path = _setting(Path("checkpoints/uploads"), "Folder of uploaded files, by chat.")
    max_bytes: int = _setting(16_777_216, "Largest upload; a larger one is refused with 413.", unit="bytes", least=1)
    max_chat_bytes: int = _setting(268_435_456, "Total size of the uploads of one chat.", unit="bytes", least=1)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "Lowest level that is logged; each model delta is a line at debug."
    )
    format: Literal["console", "json"] = _setting("console", "Lines for people, or one JSON object per line.")


@dataclass(frozen=True, kw_only=True)
class ViewportsSettings:
    dir: Path = _setting(Path("graphs/viewports"), "Folder of the viewport files.", env="AGENT_VIEWPORT_EXTERNAL_DIR")


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    enabled: bool = _setting(False, "Write trace files.", env="TRACE_ENABLED", reserved=True)
    dir: Path = _setting(Path("checkpoints/traces"), "Folder of the trace files.", env="TRACE_DIR", reserved=True)


@dataclass(frozen=True, kw_only=True)
class ContextSettings:
    window: int = _setting(
        200_000,
        "Context window of unknown models.",
        env="CONTEXT_WINDOW",
        unit="tokens",
        least=1_000,
        reserved=True,
    )
    compression_threshold: float = _setting(
        0.8,
        "Share of the window at which older rounds are summarized.",
        env="COMPRESSION_THRESHOLD",
        least=0.1,
        most=1,
        reserved=True,
    )
    min_retain_rounds: int = _setting(
        10, "Rounds that are never summarized.", env="MIN_RETAIN_ROUNDS", unit="rounds", least=1, reserved=True
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings by section (`settings.server.port`), and what else the files hold. Paths are absolute once loaded."""

    server: ServerSettings = ServerSettings()
    bounds: Bounds = Bounds()
    agents: AgentsSettings = AgentsSettings()
    tools: ToolsSettings = ToolsSettings()
    workspaces: WorkspacesSettings = WorkspacesSettings()
    bash: BashSettings = BashSettings()
    http: HttpSettings = HttpSettings()
    webhooks: WebhooksSettings = WebhooksSettings()
    llm: LlmSettings = LlmSettings()
    store: StoreSettings = StoreSettings()
    memory: MemorySettings = MemorySettings()
    uploads: UploadsSettings = UploadsSettings()
    log: LogSettings = LogSettings()
    viewports: ViewportsSettings = ViewportsSettings()
    trace: TraceSettings = TraceSettings()
    context: ContextSettings = ContextSettings()
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """`[providers.KEY]` as written, keys and types checked."""
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """`[mcp.NAME]` as written, keys and types checked."""
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`[prices."PROVIDER/MODEL"]` as written, checked."""
    folder: Path = Path()
    """Folder that held the files, and that relative paths start from."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment over `.env`: where `<KEY>_API_KEY`, `<KEY>_BASE_URL` and `<KEY>_MODEL` are looked up.

    The given names of settings (`LLM_BASE_URL`) hold what was decided from all sources.
    """
    warnings: tuple[str, ...] = ()
    """`GRAPHFLOW_…` variables that are not settings."""


SECTIONS: dict[str, type] = {
    f.name: type(f.default) for f in fields(Settings) if dataclasses.is_dataclass(f.default)
}  # fmt: skip
Kinds = tuple[type, ...]
PROVIDER_FIELDS: dict[str, Kinds] = {
    "base_url": (str,), "model": (str,), "api_key_env": (str, list), "needs_key": (bool,), "hosts": (list,),
    "aliases": (list,), "protocol": (str,), "finish_optional": (bool,), "think_tags": (bool, str),
    "replay_reasoning": (str,), "usage": (str,), "headers": (dict,), "knobs": (dict,), "script": (str,),
    "fallback": (bool, list), "auth": (str,), "limits": (dict,),
    "api_key_function": (str,), "proxy": (str,), "tls": (dict,),
}  # fmt: skip
"""Fields of `[providers.KEY]`: those of `graphflow.models.profiles.Profile`, which says what each means."""
MCP_FIELDS: dict[str, Kinds] = {
    "enabled": (bool,), "transport": (str,), "url": (str,), "sseEndpoint": (str,), "command": (str,), "args": (list,),
    "env": (dict,), "headers": (dict,), "timeoutMs": (int,), "connectTimeoutMs": (int,), "trust": (bool,),
    "effects": (str, dict), "idempotent": (list,), "capabilities": (list,),
}  # fmt: skip
"""Fields of `[mcp.NAME]`: those of `graphflow.tools.mcp.config.ServerConfig`, which says what each means."""
PRICE_FIELDS: dict[str, Kinds] = dict.fromkeys(
    ("prompt", "cached", "cache_write", "completion", "reasoning"), (float, int)
)
"""Fields of `[prices."PROVIDER/MODEL"]`: USD per million tokens, see `graphflow.models.prices.Price`."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the table."""

    name: str
    kind: Any
    """Its type, as annotated."""
    default: Any
    meaning: str
    env: tuple[str, ...]
    """Given environment names; the ruled one is `ruled_env`."""
    unit: str
    least: float | None
    most: float | None
    secret: bool
    reserved: bool

    @property
    def ruled_env(self) -> str:
        return "GRAPHFLOW_" + self.name.replace(".", "_").upper()

    @property
    def env_names(self) -> tuple[str, ...]:
        """All its environment names; the first that is set and not empty wins (of secrets an empty one is an error)."""
        return (self.ruled_env, *self.env)


def all_settings() -> list[Setting]:
    """Every row of the table, in order."""
    rows: list[Setting] = []
    for section, cls in SECTIONS.items():
        hints = get_type_hints(cls)
        rows += [
            Setting(name=f"{section}.{f.name}", kind=hints[f.name], default=f.default, **f.metadata)
            for f in fields(cls)
        ]  # fmt: skip
    return rows
