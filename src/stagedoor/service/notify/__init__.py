"""Telling people who look elsewhere that a session asks, is done or has failed (docs/notifications.md)."""
