FROM registrations WHERE study = $study ORDER BY version
