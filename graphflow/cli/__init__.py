"""The command line: one file per command group; everything heavy is imported inside the commands."""
