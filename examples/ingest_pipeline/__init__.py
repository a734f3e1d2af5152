"""An ingestion pipeline that never runs twice at once for the same dataset."""
