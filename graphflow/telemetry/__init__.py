"""Listeners beside the service: logs now; trace files and OpenTelemetry have their place here."""
