"""What a table looks like from outside: status, report, metrics, lineage. It reads tables and files, writes none, and decides no start."""
