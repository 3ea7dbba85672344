FROM paper_agreement WHERE study = $study
