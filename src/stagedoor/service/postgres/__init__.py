"""The log in PostgreSQL, for several servers and workers at once. Needs the extra ``postgres`` (asyncpg)."""
