"""The reader of shell scripts: which commands a text would run, and where it cannot be followed.

``read_script`` is the way in; a ``Script`` holds ``ShellCommand`` values with their words, redirections and folders.
What cannot be known beforehand stands in a word as a ``HOLE``. Nothing here judges: that is ``permissions.risk``.
"""
