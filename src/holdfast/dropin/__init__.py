"""The APIs that people already call, on the data that their programs already share."""
