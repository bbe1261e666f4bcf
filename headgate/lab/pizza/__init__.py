"""A chain of pizza stores: orders, kitchens, and the records they write."""
