"""The commands of `lce`, grouped by subject. Each imports its modules when it runs."""
