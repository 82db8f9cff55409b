"""Doors: each turns a request into one verb of the service. None decides."""
