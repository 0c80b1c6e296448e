-- What people have written about a thread: its title and metadata, as JSON. A commit leaves it as it is.
ALTER TABLE @.threads ADD COLUMN about text;
