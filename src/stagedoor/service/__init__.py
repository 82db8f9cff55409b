"""Many conversations, one truth: sessions that outlive their clients.

The *log* (``store``) holds everything; an event reaches a client only after it is stored. The *hub* is a doorbell: it
says that there is something new, and followers read ``seq > n`` from the log. Doors call the verbs of ``service``.
"""
