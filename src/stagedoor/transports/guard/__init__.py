"""The guard of a child: ``guard`` is run on its own, ``roles`` says what its two processes do, and ``strategies`` how
they know what belongs to their tree: ``linux`` (a sub-reaper, ``/proc``) or ``portable`` (a mark in the environment and
the process table, read again and again: by ``darwin`` on a Mac, by ``ps_table`` elsewhere). ``processes`` is for us."""
