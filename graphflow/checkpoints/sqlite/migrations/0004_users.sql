-- Whose a thread is; NULL: nobody's in particular. Without an index: its first page would weigh more than a small store gains.
ALTER TABLE threads ADD COLUMN user_name TEXT;
