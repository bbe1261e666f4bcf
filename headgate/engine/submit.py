"""The `spark-submit` call that runs a pipeline on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from headgate.cluster.pack import Report, build_pack
from headgate.cluster.settings import (
    PACK,
    PYTHON,
    UNPACKED,
    is_cluster,
    master_of,
    same_python,
    shipping,
)
from headgate.cluster.shared_folders import paths_of_tasks
from headgate.config import PipelineConfig, Secret
from headgate.config.location import is_remote
from headgate.engine.session import DRIVER, app_name, jar_groups, jar_list, java_options
from headgate.errors import SetupError, UsageError

DeployMode = Literal["client", "cluster"]

_DRIVER_PYTHON = "spark.pyspark.driver.python"
_OF_DRIVER = ("spark.driver.host", "spark.driver.bindAddress", "spark.driver.port")
"""Settings of a driver on this machine; a cluster chooses its own."""
_DRIVER_PATH = {
    "yarn": "spark.yarn.appMasterEnv.PYTHONPATH",
    "k8s": "spark.kubernetes.driverEnv.PYTHONPATH",
}
"""The setting with the PYTHONPATH of a driver in a cluster, by the kind of master."""


@dataclass(frozen=True)
class Submission:
    """A run of a pipeline on a cluster."""

    pipeline: PipelineConfig
    file: str
    """The pipeline file."""
    deploy_mode: DeployMode = "client"
    arguments: Sequence[str] = ()
    """Further arguments of `headgate run`."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark that the pipeline has from the command line."""

    @property
    def master(self) -> str:
        return master_of(self.pipeline.spark)

    def check(self) -> None:
        """Raise for a master that is not a cluster, or that cannot run a driver."""
        if not is_cluster(self.master):
            raise UsageError(
                "bad-argument",
                f"the master is not a cluster: {self.master}" if self.master else "no master",
                hint="use --master spark://HOST:7077, yarn or k8s://https://HOST:6443, or set "
                "`spark.master` in the pipeline file; headgate run needs no cluster",
            )
        if self.deploy_mode == "cluster" and self._kind not in _DRIVER_PATH:
            raise UsageError(
                "bad-argument",
                "a standalone cluster does not run drivers of Python programs",
                hint="use --deploy-mode client on a machine of the cluster",
            )

    @property
    def _kind(self) -> str:
        return self.master.partition(":")[0]

    def not_shared(self) -> dict[str, str]:
        """Return the paths, by key, that must be on a mount that all machines share."""
        paths = paths_of_tasks(self.pipeline)
        if self.deploy_mode == "cluster":
            # The next driver may be on another machine.
            if not is_remote(self.pipeline.checkpoint) and "lake" not in paths:
                paths["checkpoint"] = self.pipeline.checkpoint
            proto = getattr(self.pipeline.envelope, "proto", None)
            paths |= {"envelope.wrapper.proto": proto} if proto else {}
        return paths

    def secrets(self) -> list[Secret]:
        """Return the references that a driver in the cluster resolves there."""
        return self.pipeline.secrets if self.deploy_mode == "cluster" else []

    def call(self, pack: str | None) -> list[str]:
        """Return the call, with a pack that was built or uploaded before."""
        command = [spark_submit(), "--master", self.master, "--deploy-mode", self.deploy_mode]
        command += ["--name", app_name(self.pipeline.name)]
        settings = dict(self._settings(pack))
        for option, key in (("--jars", "spark.jars"), ("--archives", "spark.archives")):
            if given := settings.pop(key, None):
                command += [option, given]
        if self.deploy_mode == "cluster":
            command += ["--files", os.path.abspath(self.file)]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        file = os.path.abspath(self.file)
        inside = os.path.basename(file) if self.deploy_mode == "cluster" else file
        command += [_program(), "run", inside, *self.arguments]
        for key, value in self.overrides.items():
            command += ["--conf", f"{key}={value}"]
        return command

    def _settings(self, pack: str | None) -> Iterator[tuple[str, str]]:
        given = {key: one for key, one in self.pipeline.spark.items() if isinstance(one, str)}
        given.pop("spark.master", None)
        given.pop(PACK, None)
        settings = {**DRIVER, PYTHON: same_python(), **given}
        if self.deploy_mode == "client":
            settings.setdefault(_DRIVER_PYTHON, sys.executable)
        else:
            settings = {key: one for key, one in settings.items() if key not in _OF_DRIVER}
        jars = given.get("spark.jars")
        groups = jar_list(jar_groups(self.pipeline))
        settings["spark.jars"] = f"{groups},{jars}" if jars else groups
        if pack is not None:
            settings |= shipping(settings, pack)
            if self.deploy_mode == "cluster":
                path = _DRIVER_PATH[self._kind]
                given_path = settings.get(path)
                settings[path] = f"{given_path}:{UNPACKED}" if given_path else UNPACKED
        yield from sorted(settings.items())

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the call, beside those of this process."""
        return {
            "SPARK_HOME": os.environ.get("SPARK_HOME") or _pyspark(),
            "SPARK_SUBMIT_OPTS": java_options(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        }


def pack_of(submission: Submission, report: Report) -> str | None:
    """Return the pack that executors get, which is built unless the pipeline names one."""
    wanted = str(submission.pipeline.spark.get(PACK, "auto"))
    if wanted == "none":
        return None
    if wanted != "auto":
        return wanted
    needs_models = submission.deploy_mode == "cluster" and submission.pipeline.predict
    return str(build_pack(report, ("models",) if needs_models else ()))


def spark_submit() -> str:
    """Return the command of the Spark in `$SPARK_HOME`, or of that which came with PySpark."""
    return os.path.join(os.environ.get("SPARK_HOME") or _pyspark(), "bin", "spark-submit")


def _pyspark() -> str:
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        return folder
    raise SetupError("extra-missing", "pyspark is not installed", hint="pip install headgate")


def _program() -> str:
    package = os.path.dirname(os.path.dirname(__file__))
    return os.path.join(package, "cli", "driver", "headgate_driver.py")
