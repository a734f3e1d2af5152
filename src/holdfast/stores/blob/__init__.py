"""Locks as objects in a bucket or container: S3, Azure, Google Cloud."""
