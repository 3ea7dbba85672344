"""The parts of the report, each from the contents of a study; empty where there is nothing."""
