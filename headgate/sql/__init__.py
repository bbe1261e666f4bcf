"""Reads the SQL of a pipeline file; imported only where there is some: sqlglot takes a while."""
