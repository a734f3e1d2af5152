"""How calls that wait for a lock are notified, polled for, and kept from coming all at once."""
