"""Listeners beside the service: logs, and the figures of `/metrics`."""
