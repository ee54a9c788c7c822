"""A store that a server holds."""
