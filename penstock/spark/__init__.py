"""How Spark runs a plan. Packages in layers; each imports only those above it in this list.

session      the JVM, jars, Java, class archive, and the Python and code of workers
tasks        what runs in planners and tasks: scans, staging, stored answers; the files by which they talk to the driver
lowering     from a plan to Spark DataFrames
epochs       what happens in an epoch: tasks, sinks, row accounting, watermarks, timers, backpressure
checkpoints  the stored history of a job: identity, lease, layout, integrity, migration, savepoints
runs         a job from its start to its end: micro-batches, or the Kafka connector of Spark
"""
