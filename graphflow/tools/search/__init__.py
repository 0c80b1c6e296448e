"""Looking for files and for lines in them beneath a root: patterns, ignore rules, ripgrep and what stands in for it."""
