"""One file per verb of the command line, one function in each."""
