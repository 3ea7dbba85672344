FROM paper_errata
