"""An older release and this one, on one store."""
