"""PostgreSQL: the SQL database of an application."""
