"""SQL files: tables, views and sinks as statements, run as one pipeline."""

from penstock.sql_files.files import pipeline_of_file

__all__ = ["pipeline_of_file"]
