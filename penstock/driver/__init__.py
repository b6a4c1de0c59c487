"""The driver: the child process of the job manager that runs one job, or those of a pool, or waits as a spare.

`python -m penstock.driver RUN_FOLDER` listens on `driver.sock` in its run folder and goes on without a manager. The
protocol is in docs/decisions/016-the-job-manager.md. Only `spark_runtime`, `spare` and `restore` use Spark; the rest
runs against the protocols of `runtime`.
"""
