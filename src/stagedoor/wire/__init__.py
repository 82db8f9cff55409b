"""Bytes to messages, and messages to typed shapes. Pure: no I/O, no clock, no knowledge of any agent."""
