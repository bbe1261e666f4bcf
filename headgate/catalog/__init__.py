"""Catalogs: tables registered by name, so that any Spark session finds them."""
