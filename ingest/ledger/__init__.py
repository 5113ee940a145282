"""The ledger: the postings of all statements, projected from the commits of the tables. It may lag behind these but never leads."""
