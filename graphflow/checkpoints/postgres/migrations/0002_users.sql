-- Whose a thread is; NULL: nobody's in particular. A commit leaves it as it is.
ALTER TABLE @.threads ADD COLUMN user_name text;
CREATE INDEX threads_by_user ON @.threads (user_name, updated_at, id) WHERE user_name IS NOT NULL;
