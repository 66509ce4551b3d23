"""MariaDB: the SQL database behind an application."""
