"""Storage: folders, durable files, journals and file stores, on a local disk, in an object store or on HDFS.

`folders` holds the small files of checkpoints and savepoints; `stores` holds the data files that a file sink stages
and publishes; `journals` are append-only; `durable_files` writes single local files.
"""
