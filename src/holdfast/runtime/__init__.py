"""What runs the core's steps: threads and asyncio here, the simulator in `testing`."""
