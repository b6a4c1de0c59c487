"""The Spark session of this process: Java, jars, class archive, the JVM, and the Python and code of its workers."""
