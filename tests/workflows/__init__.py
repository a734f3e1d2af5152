"""The page about Airflow and Prefect, with the real ones: they are too large for `make test`."""
