-- The search of one user looks at no conversation of another.
CREATE INDEX conversations_of_owner ON conversations (owner, updated_at, chat_id) WHERE owner IS NOT NULL;
