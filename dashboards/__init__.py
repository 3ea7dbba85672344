"""Reports, charts and the dashboard of study results. The catalog is their only data source."""
