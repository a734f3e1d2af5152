"""Locks in blob storage: S3, Azure, Google Cloud, or a shared directory."""
