"""The lowest room: the Spark session, jars, files, places, errors. It imports no other room."""
