"""A Hive metastore, bound to localhost: Hive's own, from the jars of PySpark, on Derby."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import SetupError
from headgate.jars.java import find_java
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    LocalService,
    ServiceFolder,
    is_listening,
    start_detached,
)

NAME = "metastore"
_JVM = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Metastore(LocalService):
    """A running metastore."""

    @property
    def url(self) -> str:
        """The value of `catalog.in` in a pipeline file."""
        return f"thrift://{self.address}"


@dataclass(frozen=True)
class MetastoreFolder(ServiceFolder):
    """The database of the metastore, its warehouse and the last port."""

    @classmethod
    def of(cls, folder: Path) -> MetastoreFolder:
        return cls(folder / NAME)

    def prepare(self, port: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_port(port)

    @property
    def settings(self) -> dict[str, str]:
        database = self.path / "db"
        return {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file:{self.path}/warehouse",
        }


def start_metastore(folder: Path, port: int) -> DetachedProcess:
    """Start the metastore on its database, without waiting until it is ready."""
    home = MetastoreFolder.of(folder)
    if ";" in str(home.path):
        raise SetupError(
            "service-failed",
            f"Derby does not accept a semicolon in the path of its data: {home.path}",
            hint="choose a folder without a semicolon in its path",
        )
    home.prepare(port)
    command = [sys.executable, "-m", __name__, str(port), str(folder)]
    return start_detached(NAME, command, folder)


def metastore_answers(port: int) -> bool:
    """Whether a metastore listens on the port, which it does once its database is ready."""
    return is_listening(port)


def serve(port: int, home: MetastoreFolder) -> None:
    """Serve until this process is terminated.

    Hive's own main class listens on all interfaces, and there is no setting for that. So the parts
    of its server are put together here, in a JVM that ends with this process.
    """
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    jars = os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
    port_of_java, token, java = launch_gateway(
        classpath=jars,
        java_path=str(find_java().path),
        javaopts=[*_JVM, f"-Dderby.stream.error.file={home.path}/derby.log"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    try:
        parameters = GatewayParameters(port=port_of_java, auth_token=token)
        jvm = JavaGateway(gateway_parameters=parameters).jvm
        hive, thrift = jvm.org.apache.hadoop.hive, jvm.org.apache.thrift
        conf = hive.conf.HiveConf()
        for key, value in home.settings.items():
            conf.set(key, value)
        handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler("headgate", conf, False)
        socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress(HOST, port))
        arguments = thrift.server.TThreadPoolServer.Args(socket)
        arguments.processor(hive.metastore.TSetIpAddressProcessor(handler))
        thrift.server.TThreadPoolServer(arguments).serve()
    finally:
        java.stdin.close()
        java.wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), MetastoreFolder.of(Path(sys.argv[2])))
