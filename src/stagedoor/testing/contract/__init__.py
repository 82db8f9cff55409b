"""The permission contract: what a real CLI does with every kind of call under every tier, mode, policy and list.

A scripted model tries the deeds (``deeds``) in sessions of every stance (``stances``); what happened is read from the
disk, a listener and the requests to the model (``trial``), and held against what was promised (``promises``).
``make contract`` runs all of it, ``make test`` a part, ``stagedoor doctor --deep`` what matters most.
"""
