"""The client of a server: ``podium.connect(url, token)``, with the same ``run`` and ``open`` as local."""
