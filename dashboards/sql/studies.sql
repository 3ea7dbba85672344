-- REPLACE refuses a catalog of an earlier version, which lacks these columns.
FROM studies SELECT * REPLACE (arguments AS arguments, base_note AS base_note)
WHERE study = $study
