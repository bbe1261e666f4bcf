"""The plan of a workflow: its steps in order, with shards and defaults resolved."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from zoneinfo import ZoneInfo

from headgate.config import Duration, PipelineConfig, Task, Workflow
from headgate.errors import UsageError


@dataclass(frozen=True)
class Step:
    """A step that a scheduler runs: a task, or one shard of it."""

    name: str
    """`land`, or `land_2_of_4`."""
    task: str
    """The task that it belongs to."""
    command: tuple[str, ...]
    """Arguments of `headgate`, or a whole command."""
    is_headgate: bool
    """Whether `command` are arguments of `headgate`."""
    after: tuple[str, ...]
    """Steps that must succeed first."""
    retries: int
    retry_wait: Duration
    timeout: Duration | None
    cluster: str | None = None
    """The cluster that the task names."""
    group: int | None = None
    """Number of the cluster that the shard shares with others, from 1."""
    never_ends: bool = False
    """Whether it is a stream, which runs until it is stopped."""

    def words(self, headgate: str) -> list[str]:
        """Return the command, with the path of `headgate`."""
        return [headgate, *self.command] if self.is_headgate else [*self.command]


@dataclass(frozen=True)
class WorkflowPlan:
    """A workflow as a scheduler needs it."""

    pipeline: PipelineConfig
    file: str
    """The path of the pipeline file, as the steps name it."""
    workflow: Workflow
    steps: tuple[Step, ...]
    """In an order in which each comes after those that it depends on."""

    @classmethod
    def of(cls, pipeline: PipelineConfig, file: str | None = None) -> WorkflowPlan:
        """Return the plan of a pipeline's workflow; of the default one if it declares none.

        `file` is where the steps find the pipeline file, if that is on another machine.
        """
        path = file or (os.path.abspath(pipeline.file) if pipeline.file else None)
        if path is None:
            message = "a workflow needs a pipeline file"
            hint = "its tasks are commands that load it: write the pipeline to a file"
            raise UsageError("bad-argument", message, hint)
        workflow = pipeline.workflow or Workflow()
        tasks = workflow.tasks or default_tasks(pipeline, workflow)
        by_task = {
            name: [*_steps(pipeline, workflow, path, name, task)] for name, task in tasks.items()
        }
        ordered = TopologicalSorter({name: task.after for name, task in tasks.items()})
        steps: list[Step] = []
        for name in ordered.static_order():
            needed = tuple(step.name for other in tasks[name].after for step in by_task[other])
            steps += [replace(step, after=needed) for step in by_task[name]]
        return cls(pipeline, path, workflow, tuple(steps))

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def folder(self) -> str:
        """The folder in which commands run: that of the pipeline file."""
        return os.path.dirname(self.file)

    @property
    def by_name(self) -> Mapping[str, Step]:
        return {step.name: step for step in self.steps}

    @property
    def at_once(self) -> int:
        """How many steps run at the same time on one machine: at least all streams."""
        streams = sum(step.never_ends for step in self.steps)
        return max(self.workflow.streams_per_cluster, streams)

    def next_run(self) -> datetime | None:
        """Return when the schedule starts the next run."""
        schedule = self.workflow.schedule
        if schedule is None:
            return None
        zone = ZoneInfo(self.workflow.timezone)
        return next(iter(schedule.after(datetime.now(UTC), zone)), None)

    def depending_on(self, names: Sequence[str]) -> set[str]:
        """Return steps by name, and all steps that come after them."""
        found = set(names)
        for step in self.steps:
            if found & {*step.after}:
                found.add(step.name)
        return found


def default_tasks(pipeline: PipelineConfig, workflow: Workflow) -> Mapping[str, Task]:
    """Return the tasks of a workflow that declares none."""
    if workflow.is_continuous:
        return {"stream": Task(do="stream")}
    tasks = {"land": Task(do="land")}
    if pipeline.train:
        tasks["train"] = Task(do="train", after=("land",))
    if pipeline.maintain is not None:
        tasks["maintain"] = Task(do="maintain", after=("land",))
    if pipeline.lands_changes and pipeline.merged is not None:
        tasks["verify"] = Task(do="verify", after=("land",))
    return tasks


def headgate_command() -> str:
    """Return the path of the command `headgate` in this environment."""
    beside = os.path.join(os.path.dirname(sys.executable), "headgate")
    return beside if os.path.exists(beside) else "headgate"


def _steps(
    pipeline: PipelineConfig, workflow: Workflow, file: str, name: str, task: Task
) -> Iterator[Step]:
    retries = workflow.retries if task.retries is None else task.retries
    wait = task.retry_wait or workflow.retry_wait
    timeout = task.timeout or workflow.timeout
    for suffix, group, command in _commands(pipeline, workflow, file, task):
        yield Step(
            name=name + suffix,
            task=name,
            command=command,
            is_headgate=task.do is not None,
            after=(),
            retries=retries,
            retry_wait=wait,
            timeout=timeout,
            cluster=task.cluster,
            group=group,
            never_ends=task.do == "stream",
        )


_Command = tuple[str, int | None, tuple[str, ...]]
"""What distinguishes a step from others of its task, its group, and its command."""


def _commands(
    pipeline: PipelineConfig, workflow: Workflow, file: str, task: Task
) -> Iterator[_Command]:
    match task.do:
        case None:
            yield "", None, task.command or ()
        case "land" | "stream" | "follow":
            options = {"land": ("--once",), "stream": (), "follow": ("--follow-only",)}[task.do]
            for shard in range(1, pipeline.shards + 1):
                command = ("run", file, *options)
                if pipeline.shards == 1:
                    yield "", None, command
                    continue
                of = pipeline.shards
                group = (shard - 1) // workflow.streams_per_cluster + 1
                yield f"_{shard}_of_{of}", group, (*command, "--shard", f"{shard}/{of}")
        case "train":
            for name in pipeline.train:
                suffix = f"_{name}" if len(pipeline.train) > 1 else ""
                yield suffix, None, ("model", "train", file, name)
        case "maintain" | "verify":
            yield "", None, (task.do, file)
