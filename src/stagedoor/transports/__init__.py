"""Where messages come from and go to: the only package that touches processes, pipes and sockets."""
