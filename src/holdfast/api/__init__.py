"""The faces: what callers use, blocking and asyncio."""
