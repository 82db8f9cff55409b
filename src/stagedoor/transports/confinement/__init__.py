"""Run a child and all that it starts in a sandbox made by the kernel: ``mounts`` says what it sees, ``mechanism`` finds
the means that this machine has, ``inside`` is the one we bring ourselves."""
