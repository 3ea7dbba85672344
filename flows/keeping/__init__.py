"""Operations on stored results: lock, verify, show prompts, export, remove garbage."""
