"""FastAPI, Starlette and the servers that run them."""
