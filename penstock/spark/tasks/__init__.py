"""What runs in the planners and tasks of Spark, and the files by which they and the driver talk."""
