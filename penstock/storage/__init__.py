"""Storage: folders, durable files, journals and file stores, on a local disk, in an object store or on HDFS.

`folders` holds the small files of checkpoints and savepoints; `stores` holds the data files that a file sink stages
and publishes; `journals` are append-only; `json_files` and `durable_files` write single local files.
"""
