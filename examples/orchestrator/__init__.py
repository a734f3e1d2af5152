"""An orchestrator that may die, and remote workers that go on."""
