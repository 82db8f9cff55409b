"""git without what a repository has to say about it.

A repository's settings, hooks, attributes and remotes can name programs, and git would run them for a mere status. An
agent at work can write all of these at will. So no git of ours ever works on a repository's own git directory:
``repository`` reads the few files that say where it stands, ``shadow`` runs git on a directory of ours, ``reading`` and
``changing`` are what can be done with it.
"""
