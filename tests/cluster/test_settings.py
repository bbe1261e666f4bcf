"""Settings that send executors a pack."""

from __future__ import annotations

import pytest

from headgate.cluster.settings import EXECUTOR_PATH, PACK, is_cluster, shipped, shipping


@pytest.mark.parametrize("master", ["local", "local[*,4]", "local-cluster[2,1,1024]", "", None])
def test_tasks_on_this_machine_need_no_pack(master: str | None) -> None:
    assert not is_cluster(master)
    assert shipped({"spark.master": master or "local"}) == {}


@pytest.mark.parametrize("master", ["spark://main:7077", "yarn", "k8s://https://main:6443"])
def test_pack_is_chosen_by_a_setting(master: str) -> None:
    settings = {"spark.master": master}
    assert shipped({**settings, PACK: "none"}) == {}
    url = "hdfs:///packs/headgate.tar.gz"
    sent = shipped({**settings, PACK: url})
    assert sent["spark.archives"] == f"{url}#headgate-packages"
    assert sent[EXECUTOR_PATH] == "headgate-packages"


def test_archives_and_paths_of_the_pipeline_are_kept() -> None:
    given = {"spark.archives": "data.zip#data", EXECUTOR_PATH: "data"}
    assert shipping(given, "/pack.tar.gz") == {
        "spark.archives": "data.zip#data,/pack.tar.gz#headgate-packages",
        EXECUTOR_PATH: "data:headgate-packages",
    }
