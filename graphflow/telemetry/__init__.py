"""Listeners of the service: logs, and the values of `/metrics`."""
