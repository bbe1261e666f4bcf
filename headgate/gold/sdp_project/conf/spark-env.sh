# Written by `headgate export sdp`, which writes it anew.
# Where Delta Lake comes from: the jars that `headgate jars spark` has fetched, else a repository. It is
# said here because Spark 4.2 may lose `--jars` and `--packages` on the way to the server that it starts.
jars="${HEADGATE_HOME:-$HOME/.headgate}/jars/spark"
if [ -d "$jars" ]; then
  delta="--jars '$jars/*.jar'"
else
  delta="--packages @packages@"
fi
export PYSPARK_SUBMIT_ARGS="${PYSPARK_SUBMIT_ARGS:-$delta pyspark-shell}"
