"""The ground floor: the Spark session, jars, files, places, errors. Imports no other room."""
