"""The live page: `holdfast ui`. Needs Starlette and uvicorn (`holdfast[ui]`)."""
