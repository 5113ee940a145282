"""What a table looks like from outside: status, report, metrics, lineage. It writes no table and decides no start."""
