"""What the SQL of a pipeline means: pure, and without Spark."""
