"""Tools for other programs over the Model Context Protocol: functions as tools, the server's side of both eras of the
protocol, a listener on this machine's loopback, and a bridge for those that speak it over pipes only."""
