"""The understudy: a small agent that speaks ACP and plays a script with real tools in a real workspace.

It runs as ``python -m podium.understudy [--script FILE.yaml]``.
"""
