FROM paper_comparison WHERE study = $study AND value IS NOT NULL
