# Written by `headgate export sdp`, which overwrites it.
# Delta Lake: the jars that `headgate jars spark` has fetched, or else a Maven repository. Set here because
# Spark 4.2 may not pass `--jars` and `--packages` on to the server that it starts.
jars="${HEADGATE_HOME:-$HOME/.headgate}/jars/spark"
if [ -d "$jars" ]; then
  delta="--jars '$jars/*.jar'"
else
  delta="--packages @packages@"
fi
export PYSPARK_SUBMIT_ARGS="${PYSPARK_SUBMIT_ARGS:-$delta pyspark-shell}"
