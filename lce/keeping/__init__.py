"""Operations on stored results: verify, show prompts, export, remove garbage."""
