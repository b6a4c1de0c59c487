"""What a driver is started with: the manager's settings under the job's own, and executors by its parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.control.machine.instructions import Launch
from penstock.control.server import base_settings
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.leader.assignments import assign, group_of, job_settings, session_settings
from penstock.errors import SettingsError

KUBERNETES = {
    "spark_master": "k8s://https://10.0.0.1:6443",
    "spark": {"spark.kubernetes.container.image": "registry/penstock:1", "spark.kubernetes.namespace": "jobs"},
}


def test_a_jobs_own_settings_win_over_the_managers() -> None:
    base = {"parallelism": 2, "log": "a:9092", "spark": {"spark.x": "1", "spark.y": "1"}}
    found = job_settings(base, {"spark": {"spark.y": "2"}}, "1g", None)
    assert (found["parallelism"], found["log"]) == (2, "a:9092")
    assert found["spark"] == {"spark.driver.memory": "614m", "spark.x": "1", "spark.y": "2"}


@pytest.mark.parametrize(("parallelism", "cores"), [(3, "3"), (None, "2")])
def test_on_a_standalone_cluster_a_job_takes_the_cores_of_its_parallelism(parallelism: int | None, cores: str) -> None:
    base = {"spark_master": "spark://m:7077", "parallelism": 2}
    assert job_settings(base, {}, None, parallelism)["spark"]["spark.cores.max"] == cores
    assert job_settings(base, {"spark": {"spark.cores.max": "9"}}, None, 3)["spark"]["spark.cores.max"] == "9"


@pytest.mark.parametrize("wrong", ["many", -1, None, [4], 0])
def test_a_number_that_is_wrong_is_left_to_the_driver_to_report(wrong: object) -> None:
    own = {"parallelism": wrong, "spark": {"spark.executor.cores": wrong}}
    assert job_settings(KUBERNETES, own, None, None)["spark"]["spark.executor.cores"] == wrong


@pytest.mark.parametrize(("per_executor", "instances"), [(None, "5"), ("2", "3"), ("8", "1")])
def test_on_kubernetes_a_job_has_executors_for_its_parallelism(per_executor: str | None, instances: str) -> None:
    own = {"spark": {"spark.executor.cores": per_executor}} if per_executor else {}
    spark = job_settings(KUBERNETES, own, "2g", 5)["spark"]
    assert spark == {
        "spark.driver.memory": "1228m",
        "spark.submit.deployMode": "client",
        "spark.executor.cores": per_executor or "1",
        "spark.executor.instances": instances,
        "spark.kubernetes.container.image": "registry/penstock:1",
        "spark.kubernetes.namespace": "jobs",
    }


def test_a_driver_on_kubernetes_is_assigned_its_master_and_the_images_of_its_executors(tmp_path: Path) -> None:
    job, version = Job(id="j1", name="prices", parallelism=4), Version(job="j1", number=1, entry="job.py", digest="")
    launch = Launch(run="j1-1", attempt=1, version=1, parallelism=4)
    assigned = assign(job, version, launch, DataFolder(tmp_path, "s3://lake/jobs"), KUBERNETES, 7, {})
    settings = assigned.content["settings"]
    assert (settings["spark_master"], settings["parallelism"]) == ("k8s://https://10.0.0.1:6443", 4)
    assert settings["spark"]["spark.executor.instances"] == "4"
    assert assigned.content["checkpoint"] == "s3://lake/jobs/j1"
    # A spare for the same number of executors can take it, and one for another number cannot.
    assert assigned.group == group_of(session_settings(job_settings(KUBERNETES, {}, None, 4)))
    assert assigned.group != group_of(session_settings(job_settings(KUBERNETES, {}, None, 5)))


@pytest.mark.parametrize(
    "spark",
    [
        {"spark.hadoop.fs.s3a.secret.key": "Hunter-2"},
        {"spark.hadoop.fs.s3a.proxy": "http://ada:Hunter-2@proxy"},
        {"spark.kafka.clusters.a.sasl": 'login required password="Hunter-2";'},
        {"spark": {"hadoop": {"fs.s3a.secret.key": "Hunter-2"}}},
    ],
)
def test_no_driver_is_started_with_a_secret_on_its_command_line(spark: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="has secrets") as error:
        session_settings({"spark": spark})
    assert "Hunter-2" not in str(error.value)


def test_a_manager_on_kubernetes_without_an_image_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="image of the executors") as error:
        base_settings(spark_master="k8s://https://10.0.0.1:6443")
    assert "spark.kubernetes.container.image" in (error.value.hint or "")
