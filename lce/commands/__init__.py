"""The commands of `lce`, grouped by subject. A command imports its modules only when it runs."""
