-- Both back ends run this text: SQLite and PostgreSQL.
CREATE TABLE conversations (
    chat_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    agent_key TEXT,
    owner TEXT,                 -- the user whose it is
    created_at BIGINT NOT NULL, -- epoch ms
    updated_at BIGINT NOT NULL,
    folded TEXT NOT NULL        -- the name as it is searched
);
CREATE INDEX conversations_newest ON conversations (updated_at, chat_id);
CREATE TABLE conversation_runs (
    chat_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    position BIGINT NOT NULL,   -- 0.. in the conversation
    messages TEXT NOT NULL,     -- JSON
    folded TEXT NOT NULL,       -- what was said, as it is searched
    PRIMARY KEY (chat_id, run_id)
);
CREATE TABLE store_items (
    root TEXT NOT NULL,         -- the namespace's first part
    namespace TEXT NOT NULL,    -- its parts, each ended by U+001F
    name TEXT NOT NULL,
    value TEXT NOT NULL,        -- JSON; sealed: base64
    folded TEXT NOT NULL,       -- key and texts of the value, as they are searched; sealed: empty
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX store_items_root ON store_items (root, updated_at);
CREATE INDEX store_items_expiry ON store_items (expires_at);
