"""Tools: what a model may call. `port.py` is the front door; import from the modules, nothing heavy is loaded here."""
